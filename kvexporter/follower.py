"""One journal followed on the event loop, in short slices: a scrape is answered while a backlog is read."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from kvexporter.aside import Aside
from kvexporter.facts import JournalEntry
from kvexporter.snapshot import CollectorStatus
from kvexporter.sources.journal import JournalReader, Seek
from kvexporter.sources.journal_chunk import Wanted, always
from kvexporter.sources.journal_health import JournalHealth, journal_health
from kvexporter.sources.journal_library import JournalUnavailableError
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.turns import Turns

log = logging.getLogger(__name__)

SLICE_SECONDS = 0.005
RETRY_SECONDS = 30.0
HEALTH_SECONDS = 5.0

_NOT_OPENED = "not opened yet"


class JournalFollower:
    """Feeds the entries of one selection to `handler`, from the start of the unit's current invocation on.

    A journal that cannot be opened or read is tried again every 30 s and said once; nothing else waits for it.
    """

    def __init__(
        self,
        selection: JournalSelection,
        wanted: Wanted,
        handler: Callable[[JournalEntry], None],
        writers_from: Callable[[], float] = always,
        turns: Turns | None = None,
    ) -> None:
        """`wanted` and `writers_from` are the reader's: what a message says, and when its writer matters.

        Followers that share `turns` read one after the other, a slice in each turn of the loop.
        """
        self.selection = selection
        self.caught_up = False
        """All that was there has been read at least once; also True while nothing can be read."""
        self.lines: Counter[str] = Counter()
        """Entries that said nothing (ignored) or could not be read (malformed)."""
        self.read_until = 0.0
        """All entries stored before this moment (unix seconds) have been read."""
        self.newest: float | None = None
        """Time of the newest entry (unix seconds)."""
        self.lag: float | None = None
        """Seconds between the newest entry's time and its reading."""
        self.status = CollectorStatus(False, 0.0, _NOT_OPENED)
        self.recalled = False
        """It is known where to start."""
        self.gaps = 0
        """Times that entries were gone before they were read: counts are lower bounds from then on."""
        self._start: tuple[str | None, Seek] = (None, "invocation")
        self._wanted = wanted
        self._handler = handler
        self._writers_from = writers_from
        self._reader: JournalReader | None = None
        self._descriptor: int | None = None
        self._retry_at = 0.0
        self._turns = turns if turns is not None else Turns()
        self._health: Aside[JournalHealth] = Aside("looking at the journal's files")
        self._closed = False

    def start_after(self, position: str | None, gaps: int, *, head: bool = False) -> None:
        """Begin after this position; without one at the unit's current run, or at the journal's `head`."""
        self._start = (position, "head" if head else "invocation")
        self.gaps = gaps
        self.recalled = True

    @property
    def position(self) -> str | None:
        """The last entry that was read and handled; None before the first."""
        return self._reader.position() if self._reader is not None else None

    def poke(self) -> None:
        """Soon read what there is; opens the journal where it is not open, once it is known where to start."""
        if self.recalled and not self._closed and (self._reader is not None or time.monotonic() >= self._retry_at):
            self._turns.ask(self._step)

    def _step(self) -> None:
        """Read one slice, or open the journal, and come back if more is there."""
        if self._closed:
            return
        if self._reader is not None:
            self._drain(self._reader)
        elif self._open():
            self._turns.ask(self._step)

    def close(self) -> None:
        """Stop reading."""
        self._closed = True
        self._shut()

    def _open(self) -> bool:
        """Open the journal at the start of the unit's current run; False if it cannot be."""
        reader = JournalReader(self.selection, self._wanted, own_pid=os.getpid(), writers_from=self._writers_from)
        try:
            position, seek = self._start
            began = reader.open(position, seek=seek)
        except (JournalUnavailableError, OSError, ValueError) as error:
            reader.close()
            self._say(str(error))
            self.caught_up = True
            self._retry_at = time.monotonic() + RETRY_SECONDS
            return False
        if position is not None and began.kind == "gap":
            self._lost("the last entry read is gone")
        self._reader = reader
        self._listen()
        self._say(None)  # until `check` has looked closer
        self._first_check = asyncio.get_running_loop().create_task(self.check())
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
        asyncio.get_running_loop().add_reader(self._descriptor, self._turns.ask, self._step)

    def _deafen(self) -> None:
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._descriptor = None

    def _drain(self, reader: JournalReader) -> None:
        began, moment = time.perf_counter(), time.time()
        result = reader.drain(SLICE_SECONDS, self._handler)
        self.lines["ignored"] += result.read - result.wanted - result.unit_events - result.malformed
        self.lines["malformed"] += result.malformed
        if result.complete:
            self.read_until = moment
        if result.reopened:
            self._listen()
        if result.gap:
            self._lost("damaged entries were passed over")
        if result.newest is not None:
            self.newest = result.newest
            self.lag = max(0.0, time.time() - result.newest)
        self.status = CollectorStatus(self.status.success, time.perf_counter() - began, self.status.reason)
        if result.failure is not None:
            self._deafen()
            self._say(result.failure)
        if result.more:
            self._turns.ask(self._step)
        else:
            self.caught_up = True

    async def check(self) -> None:
        """Look now and then whether the reader still sees the journal, and whether it may.

        With many files that takes a while, and on a dead disk for ever: it is waited for no longer than a few seconds.
        """
        if self._reader is None:
            self.poke()
            return
        if self._reader.stale_check():
            self._listen()
            self._turns.ask(self._step)
        try:
            health = await self._health.call(partial(journal_health, self.selection), HEALTH_SECONDS)
        except TimeoutError as error:
            self._say(f"{error}: is the disk hanging?")
            return
        if self._reader is not None:
            # A folder without any file is not a journal that is read.
            self._say("; ".join(health.problems or (() if health.files else health.notes[:1])) or None)

    def _lost(self, why: str) -> None:
        self.gaps += 1
        log.warning("journal of %s: %s: counts from it are lower bounds from now on", self.selection, why)

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
