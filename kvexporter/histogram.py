"""A histogram that the model fills and the views show."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import inf

from kvexporter.snapshot import HistogramSnapshot


class Histogram:
    """Counts observations by upper bound. Weights may be fractions, as seconds spent at a value."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = (*bounds, inf)
        self._counts = [0.0] * len(self._bounds)
        self._sum = 0.0

    def observe(self, value: float, weight: float = 1.0) -> None:
        """Add `weight` observations of `value`."""
        self._counts[bisect_left(self._bounds, value)] += weight
        self._sum += value * weight

    def snapshot(self) -> HistogramSnapshot:
        """The cumulative buckets as they are now."""
        return HistogramSnapshot(tuple(zip(self._bounds, accumulate(self._counts), strict=True)), self._sum)


TOKENS = (0, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
"""Request sizes; the first bound tells requests that were refused before anything was read."""

PROMPT_SPEED = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000)
GENERATION_SPEED = (0.5, 1, 2, 5, 10, 15, 20, 30, 40, 60, 80, 100, 150, 200, 400)

FILL = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
