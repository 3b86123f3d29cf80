"""Reading processes that were killed and hang in the kernel still: each waits for a disk, and keeps its memory."""

from __future__ import annotations

import subprocess
from typing import Generic, TypeVar

T = TypeVar("T")


class Dying(Generic[T]):
    """Them, and whose log each hangs at; None where that is not known."""

    def __init__(self) -> None:
        self._all: list[tuple[subprocess.Popen[bytes], T | None]] = []

    def add(self, process: subprocess.Popen[bytes], log: T | None) -> None:
        """Keep one that was killed, and has not ended."""
        self._all.append((process, log))

    def processes(self) -> list[subprocess.Popen[bytes]]:
        """Those that have not ended yet."""
        self._all = [(process, log) for process, log in self._all if process.poll() is None]
        return [process for process, _ in self._all]

    def at(self, log: T | None) -> int:
        """How many hang at a log."""
        self.processes()
        return sum(its is log for _, its in self._all)
