"""The last hour's fill, for a sparkline: the highest of each 15 seconds."""

from __future__ import annotations

import math
from collections import deque

STEP_SECONDS = 15.0
POINTS = 240
"""An hour."""


class FillHistory:
    """The highest value of a step function in each stretch of STEP_SECONDS; bounded, and without a clock.

    A value holds from the moment it is set until the next one. Stretches in which nothing was known have no point.
    """

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=POINTS)
        """(start, highest value) of stretches that are over, oldest first."""
        self._shown: tuple[tuple[float, float], ...] | None = None
        """The same as a tuple, since it is asked for more often than it changes."""
        self._start = 0.0
        self._end = -math.inf
        """Of the stretch under way; none before the first word."""
        self._highest: float | None = None
        self._current: float | None = None

    def advance(self, to: float) -> None:
        """Time passes with the value as it is."""
        if to >= self._end:
            self._roll(to)

    def set(self, value: float | None, at: float) -> None:
        """From `at` on the value is this; None: unknown."""
        self.advance(at)
        self._current = value
        if value is not None and (self._highest is None or value > self._highest):
            self._highest = value

    def restart(self, at: float) -> None:
        """The clock was set to `at`, or nothing is known of the time just before it: what lies after is dropped."""
        if self._highest is not None and self._end <= at:
            self._points.append((self._start, self._highest))
        while self._points and self._points[-1][0] + STEP_SECONDS > at:
            self._points.pop()
        self._shown = None
        self._start = at // STEP_SECONDS * STEP_SECONDS
        self._end = self._start + STEP_SECONDS
        self._highest = self._current

    def points(self, now: float) -> tuple[tuple[float, float], ...]:
        """(start, highest value) of the stretches of the last hour, oldest first, the one under way included."""
        if self._shown is None:
            self._shown = tuple(self._points)
        shown = self._shown
        oldest = now - POINTS * STEP_SECONDS
        if shown and shown[0][0] < oldest:
            shown = tuple(point for point in shown if point[0] >= oldest)
        return shown if self._highest is None or self._start < oldest else (*shown, (self._start, self._highest))

    def _roll(self, to: float) -> None:
        """One or more stretches are over."""
        start = to // STEP_SECONDS * STEP_SECONDS
        if self._highest is not None:
            self._points.append((self._start, self._highest))
        if self._current is not None:
            whole = min(int((start - self._end) // STEP_SECONDS), POINTS)
            self._points.extend((start - n * STEP_SECONDS, self._current) for n in range(whole, 0, -1))
        self._shown = None
        self._start, self._end = start, start + STEP_SECONDS
        self._highest = self._current
