"""Which of the pool's alerts hold for a server, as the rules for Prometheus have it. Pure: a snapshot and its time.

Where a rule counts within a window, the moment of the last such event tells the same without counting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvexporter.rules.pool import ALMOST_FULL, CONTEXT_EXCEEDED, FILLING_UP, PRESSURE, REQUEST_TOO_LONG
from kvexporter.rules.rule import AlertRule
from kvexporter.rules.thresholds import (
    INCIDENT_WINDOW,
    OVERCOMMIT_RATIO,
    POOL_PAGE,
    POOL_WARN,
    PRESSURE_WINDOW,
    PoolCondition,
)
from kvexporter.snapshot import Incident, ServerSnapshot

POOL_RULES: tuple[AlertRule, ...] = (CONTEXT_EXCEEDED, ALMOST_FULL, FILLING_UP, PRESSURE, REQUEST_TOO_LONG)
"""The alerts that are judged here, the gravest first."""

SETTLED_SECONDS = 0.3
"""An error's releases are logged within milliseconds: so long after it, they are in the text too."""

OUTCOME_SECONDS = 1.0
"""A batch that found no room usually fails for good, or finds it, at once; pressure is what lasts longer or is over."""


@dataclass(frozen=True, slots=True)
class Held:
    """One alert that holds now."""

    rule: AlertRule
    since: float
    """Since when at least (unix seconds)."""
    incident: Incident | None = None
    """What it is about, where it is about one."""
    news: str = ""
    """Changes when there is something new to be told at once while the alert goes on."""


def pool_alerts(server: ServerSnapshot, at: float) -> tuple[Held, ...]:
    """Give the alerts that hold for a server at `at`, the gravest first."""
    return tuple(_holding(server, at))


def _holding(server: ServerSnapshot, at: float) -> Iterator[Held]:
    died = latest_incident(server, "pool", at)
    if died is not None:
        yield Held(CONTEXT_EXCEEDED, died.started, died, news=f"{died.started:.3f}")
    if _signs(server, POOL_PAGE):
        yield Held(ALMOST_FULL, at)
    if _signs(server, POOL_WARN):
        yield Held(FILLING_UP, at)
    refused = latest_incident(server, "slot", at)
    if died is None and refused is None and server.open_incident is None and _pressed(server, at):
        yield Held(PRESSURE, server.pressure_at or at)
    if refused is not None:
        # A client may try the same thing every second: that is no news.
        yield Held(REQUEST_TOO_LONG, refused.started, refused)


def latest_incident(server: ServerSnapshot, cause: str, at: float) -> Incident | None:
    """Give the latest incident of this cause within the rules' window, one that is not closed yet included."""
    found = server.open_incident
    if found is not None and found.cause == cause and at - found.ended >= SETTLED_SECONDS:
        return found
    found = next((incident for incident in reversed(server.incidents) if incident.cause == cause), None)
    return found if found is not None and _within(found.ended, at, INCIDENT_WINDOW) else None


def _pressed(server: ServerSnapshot, at: float) -> bool:
    if server.pressure_at is None or not _within(server.pressure_at, at, PRESSURE_WINDOW):
        return False
    return server.cascade_since is None or at - server.cascade_since >= OUTCOME_SECONDS


def _signs(server: ServerSnapshot, conditions: tuple[PoolCondition, ...]) -> bool:
    ratio, pool = server.geometry.overcommit_ratio, server.pool
    if pool is None or ratio is None or ratio <= OVERCOMMIT_RATIO:
        return False
    return any(condition.met_by(pool) for condition in conditions)


def _within(event: float, at: float, window: float) -> bool:
    # Also of a journal from a host whose clock is ahead: within the window at either side, and not for ever.
    return abs(at - event) < window
