"""Reading the configuration where no event loop runs yet: a disk that does not answer is waited for, and that is said.

Nothing sensible can be done without it, and the disk of a network may answer in a minute; so the wait has no end of its
own. systemd ends one after TimeoutStartSec= and starts anew, for as long as it takes; a signal ends it at once.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar

from kvexporter.beginning_anew import ENDING, heed_signals

T = TypeVar("T")

WORD_SECONDS = 5.0
"""After so long it is said which file is waited for. A disk that sleeps takes as long to wake up."""
_LOOK_SECONDS = 0.5


class Ended(SystemExit):
    """The process was told to end (SIGTERM) while it waited."""


class NotReadError(Exception):
    """The file of the text was not read before the deadline."""


@dataclass(slots=True)
class _Now:
    """Which file is being read, and since when (monotonic)."""

    file: tuple[Path, float] | None = None


_now: ContextVar[_Now | None] = ContextVar("file that is being read", default=None)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """While this file is read, whoever waits for it knows its name."""
    now = _now.get()
    if now is not None:
        now.file = (path, time.monotonic())
    try:
        yield
    finally:
        if now is not None:
            now.file = None


def say_on_stderr(text: str) -> None:
    """For commands, which have no log."""
    print(f"kvexporter: {text}", file=sys.stderr, flush=True)


def read_at_start(
    read: Callable[[], T], say: Callable[[str], object] = say_on_stderr, *, deadline: float | None = None
) -> T:
    """What `read` gives, or raises. To be called on the main thread.

    `say` is told once of each file whose disk makes it wait. NotReadError after `deadline` seconds, if there is one.
    """
    call = _Call(read)
    give_up = None if deadline is None else time.monotonic() + deadline
    said: set[Path] = set()
    with _ended_by_signal():
        # A daemon thread: one that a dead disk holds for ever must not keep the process from ending.
        threading.Thread(target=call.run, name="reading the configuration", daemon=True).start()
        while not call.done.wait(_LOOK_SECONDS):
            file, now = call.now.file, time.monotonic()
            if give_up is not None and now > give_up:
                name = file[0] if file is not None else "the configuration"
                raise NotReadError(f"{name}: {_HANGS}: not read within {deadline:g} s")
            if file is not None and now - file[1] >= WORD_SECONDS and file[0] not in said:
                said.add(file[0])
                say(f"{file[0]}: {_HANGS}: waiting for it; see to its mount, or name a file that is elsewhere")
    return call.result()


_HANGS = "its disk or network does not answer"


class _Call(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self.done = threading.Event()
        self.now = _Now()
        self._work = work
        self._outcome: Callable[[], T]

    def run(self) -> None:
        _now.set(self.now)
        try:
            value = self._work()
        except BaseException as error:
            failure = error

            def outcome() -> T:
                raise failure

            self._outcome = outcome
        else:
            self._outcome = lambda: value
        self.done.set()

    def result(self) -> T:
        return self._outcome()


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Have SIGTERM and SIGINT end the wait: the first process of a container is not ended by SIGTERM otherwise.

    Whatever handled them before does so again afterwards.
    """

    def end(number: int, _: FrameType | None) -> None:
        raise Ended(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    taken = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in taken:
        signal.signal(number, end)
    try:
        heed_signals(ENDING)
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
