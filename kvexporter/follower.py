"""One journal followed on the event loop, in short slices: a scrape is answered while a backlog is read."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Callable

from kvexporter.facts import JournalEntry
from kvexporter.snapshot import CollectorStatus
from kvexporter.sources.journal import JournalReader
from kvexporter.sources.journal_health import journal_health
from kvexporter.sources.journal_library import JournalUnavailableError
from kvexporter.sources.journal_selection import JournalSelection

log = logging.getLogger(__name__)

SLICE_SECONDS = 0.02
RETRY_SECONDS = 30.0

_NOT_OPENED = "not opened yet"


class JournalFollower:
    """Feeds the entries of one selection to `handler`, from the start of the unit's current invocation on.

    A journal that cannot be opened or read is tried again every 30 s and said once; nothing else waits for it.
    """

    def __init__(
        self,
        selection: JournalSelection,
        wanted: Callable[[bytes], bool],
        handler: Callable[[JournalEntry], None],
    ) -> None:
        self.selection = selection
        self.caught_up = False
        """All that was there has been read at least once; also True while nothing can be read."""
        self.lines: Counter[str] = Counter()
        """Entries that said nothing (ignored) or could not be read (malformed)."""
        self.newest: float | None = None
        """Time of the newest entry (unix seconds)."""
        self.lag: float | None = None
        """Seconds between the newest entry's time and its reading."""
        self.status = CollectorStatus(False, 0.0, _NOT_OPENED)
        self._wanted = wanted
        self._handler = handler
        self._reader: JournalReader | None = None
        self._descriptor: int | None = None
        self._retry_at = 0.0
        self._scheduled = False
        self._closed = False

    def poke(self) -> None:
        """Read what there is; opens the journal where it is not open."""
        if self._closed:
            return
        if self._reader is not None or (time.monotonic() >= self._retry_at and self._open()):
            self._drain()

    def close(self) -> None:
        """Stop reading."""
        self._closed = True
        self._shut()

    def _open(self) -> bool:
        """Open the journal at the start of the unit's current run; False if it cannot be."""
        reader = JournalReader(self.selection, self._wanted, own_pid=os.getpid())
        try:
            reader.open()
        except (JournalUnavailableError, OSError, ValueError) as error:
            reader.close()
            self._say(str(error))
            self.caught_up = True
            self._retry_at = time.monotonic() + RETRY_SECONDS
            return False
        self._reader = reader
        self._listen()
        self._say(self._problem())
        return True

    def _listen(self) -> None:
        """Have the loop call when the journal changes; the descriptor is another one after the journal was reopened."""
        self._deafen()
        if self._reader is None:
            return
        try:
            self._descriptor = self._reader.fileno()
        except (JournalUnavailableError, OSError, ValueError) as error:
            log.debug("journal of %s: no descriptor: %s", self.selection, error)
            return
        asyncio.get_running_loop().add_reader(self._descriptor, self._drain)

    def _deafen(self) -> None:
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._descriptor = None

    def _drain(self) -> None:
        """Read one slice, and come back at once if more is there."""
        self._scheduled = False
        if self._reader is None or self._closed:
            return
        began = time.perf_counter()
        result = self._reader.drain(SLICE_SECONDS, self._handler)
        self.lines["ignored"] += result.read - result.wanted - result.unit_events - result.malformed
        self.lines["malformed"] += result.malformed
        if result.reopened:
            self._listen()
        if result.newest is not None:
            self.newest = result.newest
            self.lag = max(0.0, time.time() - result.newest)
        self.status = CollectorStatus(self.status.success, time.perf_counter() - began, self.status.reason)
        if result.failure is not None:
            self._deafen()
            self._say(result.failure)
        if result.more:
            self._again()
        else:
            self.caught_up = True

    def check(self) -> None:
        """Look now and then whether the reader still sees the journal, and whether it may."""
        if self._reader is None:
            self.poke()
            return
        if self._reader.stale_check():
            self._listen()
            self._again()
        self._say(self._problem())

    def _problem(self) -> str | None:
        health = journal_health(self.selection)
        return None if health.ok else "; ".join(health.problems)

    def _again(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _say(self, reason: str | None) -> None:
        if reason != self.status.reason:
            if reason is not None:
                log.warning("journal of %s: %s", self.selection, reason)
            elif self.status.reason != _NOT_OPENED:
                log.info("journal of %s: read again", self.selection)
        self.status = CollectorStatus(reason is None, self.status.duration, reason)

    def _shut(self) -> None:
        self._deafen()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
