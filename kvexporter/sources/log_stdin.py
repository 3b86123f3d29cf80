"""Reads a log that is piped into standard input. What was piped in once does not come again."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

from kvexporter.sources.drain import DrainResult, Handler, Seek
from kvexporter.sources.journal_chunk import Wanted
from kvexporter.sources.journal_library import JournalUnavailableError
from kvexporter.sources.journal_position import JournalStart
from kvexporter.sources.log_cutter import LineCutter
from kvexporter.sources.log_lines import MAX_LINE

READ = "read"
"""The position of a stream of which something was read. It leads nowhere: it only tells that reading had begun."""

ENDED = "standard input has ended: whatever piped the log in is gone, and more comes only after a new start"
EMPTY = "standard input ended without a line: pipe the server's log into it, as in `docker logs -f NAME | kvexporter …`"


class StdinReader:
    """Reads lines from a descriptor. `clock` gives unix seconds."""

    def __init__(self, wanted: Wanted, descriptor: int = 0, clock: Callable[[], float] = time.time) -> None:
        self._cutter = LineCutter(wanted)
        self._descriptor = descriptor
        self._clock = clock
        self._opened = False
        self._rest = b""
        """The beginning of a line."""
        self._read = False
        self._ended: str | None = None
        self._poll = select.poll()

    def open(self, position: str | None = None, *, seek: Seek = "invocation") -> JournalStart:
        """Begin to read; with a `position`, what another reader had begun. JournalUnavailableError if it is closed."""
        try:
            os.fstat(self._descriptor)
        except OSError:
            raise JournalUnavailableError("standard input is closed: pipe the server's log into it") from None
        self._poll.register(self._descriptor, select.POLLIN)
        self._opened, self._read = True, position is not None
        # What the other one had read and not handed on is lost.
        return JournalStart("gap" if self._read else "head")

    def close(self) -> None:
        """Read no more. The descriptor is not this reader's to close."""
        self._opened = False

    def fileno(self) -> int:
        """The descriptor; JournalUnavailableError once there is nothing more to come."""
        if not self._opened or self._ended is not None:
            raise JournalUnavailableError("standard input is not read")
        return self._descriptor

    def announces(self) -> bool:
        """Always."""
        return True

    def stale_check(self) -> bool:
        """Nothing to do."""
        return False

    def position(self) -> str | None:
        """Whether anything was read."""
        return READ if self._read else None

    def drain(self, budget_seconds: float, handler: Handler) -> DrainResult:
        """Read what there is, for the budget and at most a chunk more; call `handler` for what is of interest."""
        if not self._opened:
            raise JournalUnavailableError("standard input is not read")
        result = DrainResult()
        deadline = time.monotonic() + budget_seconds
        while self._ended is None:
            # A blocking read of what is there: O_NONBLOCK would be set for whoever else holds the descriptor, too.
            if not self._poll.poll(0):
                result.complete = True
                break
            try:
                data = os.read(self._descriptor, MAX_LINE)
            except OSError as error:
                self._ended = f"standard input cannot be read: {error.strerror}"
                break
            now = self._clock()
            if not data:
                self._ended = ENDED if self._read else EMPTY
            self._read = self._read or bool(data)
            self._rest += data or (b"\n" if self._rest else b"")
            self._rest = self._rest[self._cutter.take(self._rest, now, now, result, handler) :]
            if time.monotonic() >= deadline:
                result.more = self._ended is None
                break
        result.failure = self._ended
        return result
