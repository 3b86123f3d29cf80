"""One journal as the daemon follows it: where reading starts, how far it has come, and whether it goes on.

The reading itself is another process's (see `reading/`); what it tells is handed to the models here, batch by batch.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from kvexporter.aside import Aside
from kvexporter.facts import JournalEntry
from kvexporter.reading.batch import Batch
from kvexporter.reading.link import ReadingLink
from kvexporter.snapshot import CollectorStatus
from kvexporter.sources.drain import Seek
from kvexporter.sources.journal_chunk import always
from kvexporter.sources.journal_health import JournalHealth
from kvexporter.sources.log_health import log_health
from kvexporter.sources.log_selection import Selection, StdinSelection, described

log = logging.getLogger(__name__)

HEALTH_SECONDS = 5.0
HEALTHY_SECONDS = 300.0
"""Between two looks at the files of a journal that is read without trouble."""
WRITERS_SECONDS = 30.0
"""A moment from which on writers are told is told again when it has moved so far."""

LATE_SECONDS = 5.0
"""journald itself holds lines back for less than this."""

_NOT_OPENED = "not opened yet"


class JournalFollower:
    """Feeds the entries of one selection to `handler`, from the start of the unit's current invocation on.

    A journal that cannot be opened or read is tried again every 30 s and said once; nothing else waits for it.
    """

    def __init__(
        self,
        selection: Selection,
        link: ReadingLink,
        handler: Callable[[JournalEntry], object],
        writers_from: Callable[[], float] = always,
    ) -> None:
        """`link`: who reads. `writers_from`: from which time on (unix seconds) it matters who wrote a line."""
        self.selection = selection
        self.caught_up = False
        """All that was there has been read at least once; also True while nothing can be read."""
        self._got_on = False
        """Something was read since the journal was opened."""
        self.lines: Counter[str] = Counter()
        """Entries that said nothing (ignored) or could not be read (malformed)."""
        self.read_until = 0.0
        """All entries stored before this moment (unix seconds) have been read."""
        self.newest: float | None = None
        """Time of the newest entry (unix seconds)."""
        self.lag: float | None = None
        """Seconds between the newest entry's time and its reading; 0 again once a backlog has been read to its end."""
        self.status = CollectorStatus(False, 0.0, _NOT_OPENED)
        self.recalled = False
        """It is known where to start."""
        self.gaps = 0
        """Times that entries were gone before they were read: counts are lower bounds from then on."""
        self.position: str | None = None
        """The last entry that was read and handled; None before the first."""
        self.heard = 0.0
        """When something was read, or found out to be all, last (monotonic)."""
        self._seek: Seek = "invocation"
        self._link = link
        self._handler = handler
        self._writers_from = writers_from
        self._told_writers = 0.0
        self._number: int | None = None
        """The link's, of the reading that goes on."""
        self._retry_at = 0.0
        self._look_again = 0.0
        """When its files are to be looked at again (monotonic)."""
        self._health: Aside[JournalHealth] = Aside("looking at the journal's files")
        self._closed = False
        self._failure: str | None = None
        """Why the reading process cannot read now, as it said last."""

    def start_after(self, position: str | None, gaps: int, *, head: bool = False) -> None:
        """Begin after this position; without one at the unit's current run, or at the journal's `head`."""
        self.position = position
        self._seek = "head" if head else "invocation"
        self.gaps = gaps
        self.recalled = True

    def poke(self) -> None:
        """Have the journal opened where it is not, once it is known where to start."""
        if not self.recalled or self._closed:
            return
        if self._number is None and time.monotonic() >= self._retry_at:
            self._told_writers = self._writers_from()
            self._number = self._link.open(self, self.selection, self.position, self._seek, self._told_writers)
        elif self._number is not None:
            self._tell_writers(self._number)

    def read_by(self, link: ReadingLink) -> None:
        """Have another process go on with the reading."""
        if self._number is not None:
            self._link.close(self._number)
            self._number = None
        self._link.forget(self)
        self._link = link
        self._retry_at = 0.0

    def close(self) -> None:
        """Stop reading."""
        self._closed = True
        if self._number is not None:
            self._link.close(self._number)
            self._number = None
        self._link.forget(self)

    def _tell_writers(self, number: int) -> None:
        writers_from = self._writers_from()
        before, self._told_writers = self._told_writers, writers_from
        if math.isfinite(before) and math.isfinite(writers_from) and abs(writers_from - before) < WRITERS_SECONDS:
            self._told_writers = before
        elif writers_from != before:
            self._link.writers(number, writers_from)

    # ---- what the reading process tells --------------------------------------------------------------------------

    def opened(self, *, gap: bool) -> None:
        """It is read; with a gap, if entries after the position are gone."""
        if gap and self.position is not None:
            self._lost("the last entry read is gone")
        self._failure = None
        self._look_again = 0.0
        self._say(None)  # until `check` has looked closer
        self._first_check = asyncio.get_running_loop().create_task(self.check())

    def failed(self, reason: str, *, wait: float) -> None:
        """It could not be opened, or cannot be read on; to be tried again after `wait` seconds."""
        self._number = None
        self._say(reason)
        # One that got on goes on in a moment: half of the past is not to be shown as all of it.
        self.caught_up = self.caught_up or not self._got_on
        self._got_on = False
        self._retry_at = time.monotonic() + wait

    def batch(self, batch: Batch, *, more: bool) -> None:
        """A slice was read. All of it is handled before anything else: counts and position go together."""
        self.heard = time.monotonic()
        for entry in batch.entries:
            self._handler(entry)
        self._got_on = self._got_on or batch.position != self.position
        self.position = batch.position
        self.lines["ignored"] += batch.ignored
        self.lines["malformed"] += batch.malformed
        if batch.complete_at is not None:
            self.read_until = batch.complete_at
        if batch.gap:
            self._lost("entries were gone or damaged before they were read")
        if batch.newest is not None:
            self.newest = batch.newest
            self.lag = max(0.0, time.time() - batch.newest)
        elif batch.complete_at is not None and self.lag is not None and self.lag > LATE_SECONDS:
            self.lag = 0.0  # an idle server's last line was old when it was read, and nothing waits behind it
        self.status = CollectorStatus(self.status.success, batch.duration, self.status.reason)
        if batch.failure != self._failure:
            self._failure = batch.failure
            self._say(batch.failure)
        if not more:
            self.caught_up = True

    # ----------------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Look now and then whether the journal may be read, and whether the reading goes on.

        With many files that takes a while, and on a dead disk for ever: it is waited for no longer than a few seconds.
        """
        self.poke()
        if self._number is None:
            return
        silent = self._link.silence()
        if silent:
            self._say(f"nothing was heard of the process that reads it for {silent:.0f} s: is the disk hanging?")
            return
        if isinstance(self.selection, StdinSelection):
            return  # its reader tells how it goes
        if self.status.success and self._failure is None and time.monotonic() < self._look_again:
            return
        self._look_again = time.monotonic() + HEALTHY_SECONDS
        try:
            health = await self._health.call(partial(log_health, self.selection), HEALTH_SECONDS)
        except TimeoutError as error:
            self._say(f"{error}: is the disk hanging?")
            return
        if self._number is not None:
            # A folder without any file is not a journal that is read.
            self._say("; ".join(health.problems or (() if health.files else health.notes[:1])) or self._failure)

    def _lost(self, why: str) -> None:
        self.gaps += 1
        log.warning("%s: %s: counts from it are lower bounds from now on", described(self.selection), why)

    def _say(self, reason: str | None) -> None:
        if reason != self.status.reason:
            if reason is not None:
                log.warning("%s: %s", described(self.selection), reason)
            elif self.status.reason != _NOT_OPENED:
                log.info("%s: read again", described(self.selection))
        self.status = CollectorStatus(reason is None, self.status.duration, reason)
