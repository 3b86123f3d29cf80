"""Whose logs a reading process hung at: they are opened again after all others, and one at a time.

Each may hang the next process just so, and what comes after it is not read then. No clock: times are monotonic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Suspects(Generic[T]):
    """Logs that hung the process, until something is read of them again or nobody wants them any more."""

    def __init__(self) -> None:
        self._logs: dict[T, None] = {}
        """The one that hung the longest ago comes first."""
        self._rest_until = 0.0

    def __contains__(self, log: object) -> bool:
        return log in self._logs

    def __iter__(self) -> Iterator[T]:
        return iter(self._logs)

    def hung(self, log: T, rest_until: float) -> None:
        """The process hung at this one: it is the last to be tried again. Until this moment all of them rest."""
        self._logs.pop(log, None)
        self._logs[log] = None
        self._rest_until = rest_until

    def clear(self, log: T) -> None:
        """It answered, or is not wanted any more."""
        self._logs.pop(log, None)

    def may_open(self, log: T, now: float, held: Callable[[T], bool]) -> bool:
        """Whether a log may be opened now. `held`: whether one is not to be opened whatever else is."""
        if log not in self._logs:
            return True
        first = next((its for its in self._logs if not held(its)), None)
        return first == log and now >= self._rest_until
