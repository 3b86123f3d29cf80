"""The highest value of a step function over a sliding stretch of time."""

from __future__ import annotations

from collections import deque


class PeakWindow:
    """Keeps the highest value that was in force during the last `length` seconds.

    A value holds from the moment it is set until the next one. Memory is bounded: only values that can still become
    the peak are kept, and at most one for each hundredth of the window.
    """

    def __init__(self, length: float) -> None:
        self._length = length
        self._resolution = length / 100
        self._steps: deque[tuple[float, float]] = deque()
        """(end of being in force, value), values falling; the value in force now is apart."""
        self._current: float | None = None

    def set(self, value: float | None, at: float) -> None:
        """From `at` on, `value` is in force (None: unknown)."""
        if self._current is not None and (value is None or value < self._current):
            self._remember(self._current, at)
        self._current = value

    def peak(self, now: float) -> float | None:
        """The highest value in force at any time in the last `length` seconds; None if none is known."""
        while self._steps and self._steps[0][0] < now - self._length:
            self._steps.popleft()
        highest = self._steps[0][1] if self._steps else None
        if self._current is None:
            return highest
        return self._current if highest is None else max(highest, self._current)

    def clear(self) -> None:
        """Forget everything, as after a restart of what is measured."""
        self._steps.clear()
        self._current = None

    def _remember(self, value: float, until: float) -> None:
        while self._steps and self._steps[-1][1] <= value:
            self._steps.pop()
        if self._steps and until - self._steps[-1][0] < self._resolution:
            # Too close to tell apart: the higher one lives as long as the later one.
            self._steps[-1] = (until, self._steps[-1][1])
        else:
            self._steps.append((until, value))
