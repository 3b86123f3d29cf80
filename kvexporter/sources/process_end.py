"""Tells when processes end, at once and without looking at them again and again (pidfd_open(2), Linux 5.3)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class ProcessEnds:
    """`on_end` is called on the loop, with its number, when a process that is watched has ended (a zombie has).

    Needs no permission. Where the kernel or a filter of system calls forbids it nothing is told, and never an error.
    """

    def __init__(self, on_end: Callable[[int], None]) -> None:
        self._on_end = on_end
        self._descriptors: dict[int, int] = {}
        """Process → descriptor that becomes readable at its end."""

    def watch(self, pid: int) -> None:
        """Watch the process that has this number now; nothing new if it is watched already. Needs a running loop."""
        if pid in self._descriptors:
            return
        try:
            loop = asyncio.get_running_loop()
            descriptor = os.pidfd_open(pid)
        except (OSError, RuntimeError):
            return
        self._descriptors[pid] = descriptor
        loop.add_reader(descriptor, self._ended, pid)

    def keep(self, pids: set[int]) -> None:
        """Watch none but these any more."""
        for pid in self._descriptors.keys() - pids:
            self._forget(pid)

    def _ended(self, pid: int) -> None:
        self._forget(pid)
        self._on_end(pid)

    def _forget(self, pid: int) -> None:
        descriptor = self._descriptors.pop(pid)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
