"""A histogram that the model fills and the views show."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from kvexporter.snapshot import HistogramSnapshot


@dataclass(slots=True)
class Histogram:
    """Counts observations by upper bound. Weights may be fractions, as seconds spent at a value."""

    bounds: tuple[float, ...]
    """Upper bounds, rising, without infinity."""
    counts: list[float] = field(default_factory=list)
    """Observations by bound, the last one those above all bounds."""
    sum: float = 0.0

    def __post_init__(self) -> None:
        if not self.counts:
            self.counts = [0.0] * (len(self.bounds) + 1)
        if len(self.counts) != len(self.bounds) + 1:
            raise ValueError(f"{len(self.counts)} counts for {len(self.bounds)} bounds")

    def observe(self, value: float, weight: float = 1.0) -> None:
        """Add `weight` observations of `value`."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.sum += value * weight

    def snapshot(self) -> HistogramSnapshot:
        """The cumulative buckets as they are now."""
        return HistogramSnapshot(tuple(zip((*self.bounds, inf), accumulate(self.counts), strict=True)), self.sum)


TOKENS = (0, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
"""Request sizes; the first bound tells requests that were refused before anything was read."""

PROMPT_SPEED = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000)
GENERATION_SPEED = (0.5, 1, 2, 5, 10, 15, 20, 30, 40, 60, 80, 100, 150, 200, 400)

FILL = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
