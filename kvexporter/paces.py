"""When what comes again and again is due: at the multiples of its interval on the host's monotonic clock.

So the steps of all loops, and of the reading process too, fall on the same moments, and a processor that may sleep
otherwise is woken once for all of them.
"""

from __future__ import annotations

_SKIPPED = 0.1
"""Less than this share of an interval before a multiple, it is the one after that: a step came a little early."""


def until_next(interval: float, now: float) -> float:
    """Seconds from `now` (of the monotonic clock) to the next multiple of the interval; 0 for an interval of 0."""
    if interval <= 0.0:
        return 0.0
    left = interval - now % interval
    return left if left > interval * _SKIPPED else left + interval
