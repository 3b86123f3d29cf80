"""Which log the reading process looks at, in memory that the daemon sees too: one that hangs says nothing any more."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

_BYTES = 8


class Whereabouts:
    """A number that both processes see; 0: no log. `descriptor`: of the memory, as the daemon has passed it on."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, _BYTES)

    @classmethod
    @contextmanager
    def shared(cls) -> Iterator[Whereabouts]:
        """New ones, whose descriptor can be passed on meanwhile. OSError when there is no memory for them."""
        descriptor = os.memfd_create("kvexporter-reading")
        try:
            os.truncate(descriptor, _BYTES)
            yield cls(descriptor)
        finally:
            os.close(descriptor)  # what is mapped is seen all the same

    @property
    def number(self) -> int:
        """The log that is looked at."""
        return int.from_bytes(self._memory[:], "little")

    @contextmanager
    def at(self, number: int) -> Iterator[None]:
        """Looks at a log, which may hang."""
        self._memory[:] = number.to_bytes(_BYTES, "little")
        try:
            yield
        finally:
            self._memory[:] = bytes(_BYTES)
