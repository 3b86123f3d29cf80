"""Lets many do long work on one loop by turns: each in slices, and between two slices the loop does all else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

ROUNDS = 4
"""Turns of the loop between two slices in a row. A scrape takes three from its first byte to its answer's last: with
fewer, each of them would wait for a slice."""


class Turns:
    """Between two slices the loop looks after everything else, however many wait for their turn."""

    def __init__(self) -> None:
        self._waiting: dict[Callable[[], None], None] = {}
        self._scheduled = False
        self._running = False

    def ask(self, slice_of_work: Callable[[], None]) -> None:
        """Have this called soon, once; it asks again for its next slice."""
        self._waiting[slice_of_work] = None
        if not self._scheduled and not self._running:
            self._schedule(1)

    def _schedule(self, rounds: int) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._run, rounds)

    def _run(self, rounds: int) -> None:
        if rounds > 1:
            asyncio.get_running_loop().call_soon(self._run, rounds - 1)
            return
        self._scheduled, self._running = False, True
        first = next(iter(self._waiting))
        del self._waiting[first]
        try:
            first()
        finally:
            self._running = False
            if self._waiting:
                self._schedule(ROUNDS)
