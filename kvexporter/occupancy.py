"""How full the pool was, over time."""

from __future__ import annotations

from kvexporter.fill_history import FillHistory
from kvexporter.histogram import FILL, Histogram
from kvexporter.snapshot import HistogramSnapshot
from kvexporter.window import PeakWindow

PEAK_SECONDS = 60.0
"""The peak's window: no scrape interval up to this misses one."""


LEAP_SECONDS = 86400.0
"""Nothing being heard for longer than this is taken for the clock having been set."""


class OccupancyTime:
    """Seconds spent at each fill, the recent peak, and the course of the last hour."""

    def __init__(self) -> None:
        self.seconds = Histogram(FILL)
        self._history = FillHistory()
        self._peak = PeakWindow(PEAK_SECONDS)
        self._fill: float | None = None
        self._since: float | None = None
        self._known = False

    def restart(self, at: float) -> None:
        """The clock was set back to `at`."""
        self._since = at
        self._peak.clear()
        self._peak.set(self._fill, at)
        self._history.restart(at)

    def advance(self, to: float) -> None:
        """Time passes with the fill as it is; a leap of the clock is not time that has passed."""
        since, self._since = self._since, to
        if since is not None:
            passed = to - since
            if passed > LEAP_SECONDS:
                self._history.restart(to)
            elif self._fill is not None and passed > 0:
                self.seconds.observe(self._fill, passed)
        self._history.advance(to)

    def set(self, fill: float | None, at: float) -> None:
        """From `at` on the fill is this (ratio; None: unknown)."""
        if fill is not None:
            self._known = True
        if fill != self._fill:
            self._peak.set(fill, at)
            self._history.set(fill, at)
            self._fill = fill

    def touch(self, fill: float, at: float) -> None:
        """The fill was this for a moment at `at`, too short to be seen otherwise."""
        self._known = True
        self._peak.set(fill, at)
        self._peak.set(self._fill, at)
        self._history.set(fill, at)
        self._history.set(self._fill, at)

    def peak(self, now: float) -> float | None:
        """The highest fill of the last minute."""
        return self._peak.peak(now)

    def history(self, now: float) -> tuple[tuple[float, float], ...]:
        """(start, highest fill) of each 15 seconds of the last hour in which it was known."""
        return self._history.points(now)

    def snapshot(self) -> HistogramSnapshot | None:
        """Seconds by fill; None if the fill was never known."""
        return self.seconds.snapshot() if self._known or any(self.seconds.counts) else None
