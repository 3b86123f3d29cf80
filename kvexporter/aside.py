"""Calls that may hang (a file on a dead disk, a driver) are made aside: in a thread of their own, with a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Aside(Generic[T]):
    """One call at a time; who asks while one is under way gets its result. `name` says what is done, for errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._under_way: asyncio.Future[T] | None = None
        self._late = False
        """The call under way has passed its deadline: no other is made until it has come back."""

    @property
    def late(self) -> bool:
        """A call has passed its deadline and has not come back."""
        return self._late

    @property
    def under_way(self) -> bool:
        """A call has not come back."""
        return self._under_way is not None

    async def call(self, work: Callable[[], T], deadline: float) -> T:
        """What `work` gives, or raises. TimeoutError after `deadline` seconds, and at once while an earlier one hangs.

        The thread is one that does not keep the process from ending.
        """
        if self._late:
            raise TimeoutError(f"{self._name}: an earlier attempt has not come back")
        if self._under_way is None:
            self._under_way = self._begin(work)
        done, _ = await asyncio.wait((self._under_way,), timeout=deadline)
        if not done:
            self._late = True
            raise TimeoutError(f"{self._name}: no result within {deadline:g} s")
        return done.pop().result()

    def _begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(set_it: Callable[[], None]) -> None:
            set_it()
            future.exception()  # else asyncio complains when nobody waits for it any more
            self._under_way, self._late = None, False

        def run() -> None:
            outcome: Callable[[], None]
            try:
                result = work()
            except BaseException as error:
                failure = error
                outcome = lambda: future.set_exception(failure)  # noqa: E731
            else:
                outcome = lambda: future.set_result(result)  # noqa: E731
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, outcome)

        threading.Thread(target=run, name=self._name, daemon=True).start()
        return future
