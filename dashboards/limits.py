"""Where colours change: at the alerts' own thresholds."""

from __future__ import annotations

from collections.abc import Callable

from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.models.dashboard import Threshold, ThresholdsMode

from kvexporter.rules import thresholds
from kvexporter.rules.thresholds import PoolCondition

GREEN, YELLOW, RED, NEUTRAL = "green", "yellow", "red", "text"


def rising(*steps: tuple[float | None, str], base: str = GREEN) -> ThresholdsConfig:
    """Colours from `base` on, each from its value upwards; steps without a value are left out."""
    found = [Threshold(value, color) for value, color in steps if value is not None]
    # Grafana takes the last step that is reached, so they must rise.
    found.sort(key=lambda step: step.value or 0.0)
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps([Threshold(None, base), *found])


def falling(red_below: float | None, yellow_below: float | None) -> ThresholdsConfig:
    """Red below the first value, yellow below the second, green from there on; either may be missing."""
    if red_below is None:
        return rising((yellow_below, GREEN), base=GREEN if yellow_below is None else YELLOW)
    return rising((red_below, GREEN if yellow_below is None else YELLOW), (yellow_below, GREEN), base=RED)


def _lowest(read: Callable[[PoolCondition], float | None], conditions: tuple[PoolCondition, ...]) -> float | None:
    return min((value for condition in conditions if (value := read(condition)) is not None), default=None)


def _highest(read: Callable[[PoolCondition], float | None], conditions: tuple[PoolCondition, ...]) -> float | None:
    return max((value for condition in conditions if (value := read(condition)) is not None), default=None)


FILL = rising((thresholds.FILL_WARN_RATIO, YELLOW), (thresholds.FILL_PAGE_RATIO, RED))

# A page has several conditions, some of two bounds: red is where one is met by this number alone, or nearly so.

PEAK = rising(
    (_lowest(lambda bound: bound.fill_peak_ratio, thresholds.POOL_WARN), YELLOW),
    (_highest(lambda bound: bound.fill_peak_ratio, thresholds.POOL_PAGE), RED),
)

COMMITTED = rising(
    (_lowest(lambda bound: bound.committed_ratio, thresholds.POOL_WARN), YELLOW),
    (_highest(lambda bound: bound.committed_ratio, thresholds.POOL_PAGE), RED),
)

SECONDS_TO_FULL = falling(
    _highest(lambda bound: bound.seconds_to_full, thresholds.POOL_PAGE),
    _highest(lambda bound: bound.seconds_to_full, thresholds.POOL_WARN),
)

# A pool that promises exactly what it has is sound, so the colour changes just above.
OVERCOMMIT = rising((thresholds.OVERCOMMIT_RATIO + 0.001, YELLOW))

STALLED = rising((thresholds.STALLED_SECONDS, YELLOW))

TASK_AGE = rising((thresholds.TASK_AGE_SECONDS, YELLOW))

DEFERRED = rising((thresholds.DEFERRED_REQUESTS + 1, YELLOW))

UNIFIED_AVAILABLE = falling(None, thresholds.UNIFIED_AVAILABLE_RATIO)

MAJOR_FAULTS = rising((thresholds.MAJOR_FAULTS_PER_SECOND, YELLOW))

JOURNAL_LAG = rising((thresholds.JOURNAL_LAG_SECONDS, YELLOW))

GROWTH = rising((thresholds.CREEP_RATIO, YELLOW))

ANY = rising((1, RED))
"""None is good, one is bad."""

SOME = rising((1, YELLOW))

PLAIN = rising(base=NEUTRAL)
"""A number that is neither good nor bad."""
