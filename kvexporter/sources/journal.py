"""Follows one server's journal entries with systemd's low-level reader: fast, resumable, and through every rotation.

One reader belongs to one thread. Damaged entries are counted and passed over, and when libsystemd cannot go on, the
journal is opened anew at the last entry read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kvexporter.facts import JournalEntry
from kvexporter.sources.journal_chunk import DAMAGED, ChunkReader
from kvexporter.sources.journal_folders import listing
from kvexporter.sources.journal_library import JournalUnavailableError, LowLevelReader, open_journal
from kvexporter.sources.journal_position import JournalStart, current_run_start, seek_after, seek_beyond
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.split_lines import SplitLines

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 60.0
SILENCE_SECONDS = 5.0
"""How long a reader must have been silent before a changed folder makes it suspect."""

Handler = Callable[[JournalEntry], None]


@dataclass(slots=True)
class DrainResult:
    """What one drain read."""

    read: int = 0
    """Entries read, of any kind."""
    wanted: int = 0
    """Entries of the server handed on because their message was wanted."""
    unit_events: int = 0
    """Entries of systemd or journald about the unit, handed on."""
    malformed: int = 0
    """Entries without a readable message."""
    continued: int = 0
    """Entries handed on that are later pieces of a split line."""
    newest: float | None = None
    """When the last entry read was received, unix seconds; None when nothing was read."""
    more: bool = False
    """The budget ended before the entries did: call again soon."""
    reopened: bool = False
    """The journal was opened anew, so `fileno()` is another descriptor."""
    gap: bool = False
    """Entries may have been lost: passed over because they are damaged, or vacuumed before they were read."""
    failure: str | None = None
    """Why reading cannot go on now; later drains try again, at growing intervals."""


class JournalReader:
    """Reads a selection's entries, oldest first, from where `open` starts."""

    def __init__(
        self,
        selection: JournalSelection,
        wanted: Callable[[bytes], bool],
        *,
        own_pid: int | None = None,
        opener: Callable[[JournalSelection], LowLevelReader] = open_journal,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wanted` sees every message first and must be cheap. `own_pid`: the exporter's, whose lines, written from now
        on, are no server's even if the matches take them in (else an error it quotes would be counted again, for ever).
        """
        self.selection = selection
        self._wanted = wanted
        self._own_pid = own_pid
        self._open_journal = opener
        self._clock = clock
        self._reader: LowLevelReader | None = None
        self._chunks: ChunkReader | None = None
        self._started = False
        self._begin: str | None = None
        self._cursor: str | None = None
        self._listing: tuple[tuple[str, int], ...] = ()
        self._last_read = 0.0
        self._failures = 0
        self._retry_at = 0.0

    # ---- opening and closing ---------------------------------------------------------------------------------------

    def open(self, cursor: str | None = None, *, seek: Literal["invocation", "head"] = "invocation") -> JournalStart:
        """Open the journal and choose where to start: after `cursor` when given, else at `seek`.

        JournalUnavailableError when there is no journal to open.
        """
        self.close()
        self._started, self._failures = False, 0
        self._begin = self._cursor = None
        start: JournalStart | None = None
        if cursor is not None:
            reader, chunks = self._attach()
            try:
                exact, chunks.on_unread = seek_after(reader, cursor)
                self._cursor = cursor
                start = JournalStart("cursor" if exact else "gap")
            except DAMAGED:
                log.warning("the stored position in the journal of %s is unusable: reading starts anew", self.selection)
                self.close()
        if start is None:
            self._begin = current_run_start(self.selection) if seek == "invocation" else None
            self._attach()
            self._go_back(None)
            start = JournalStart("head" if self._begin is None else "invocation", cursor_refused=cursor is not None)
        self._started = True
        return start

    def close(self) -> None:
        """Close the journal, if open."""
        if self._reader is not None:
            reader, self._reader, self._chunks = self._reader, None, None
            reader.close()

    def _attach(self) -> tuple[LowLevelReader, ChunkReader]:
        self._listing = listing(self.selection)  # before opening: a change in between is seen by stale_check
        self._reader = self._open_journal(self.selection)
        self._chunks = ChunkReader(self._reader, self.selection.about, self._wanted, self._own_pid)
        self._last_read = self._clock()
        return self._reader, self._chunks

    def _attached(self) -> tuple[LowLevelReader, ChunkReader]:
        if self._reader is None or self._chunks is None:
            raise JournalUnavailableError("the journal is not open")
        return self._reader, self._chunks

    def _go_back(self, mark: str | None) -> bool:
        """Position after the entry of cursor `mark`, or where reading began if None; False when that entry is gone.

        OSError or ValueError when libsystemd cannot.
        """
        reader, chunks = self._attached()
        chunks.on_unread = False
        if mark is not None:
            exact, chunks.on_unread = seek_after(reader, mark)
            if exact and chunks.split is not None:
                chunks.split.continued(chunks.field)  # its line may be the one that goes on
            return exact
        if self._begin is None:
            reader.seek_head()
            return True
        reader.seek_cursor(self._begin)
        chunks.on_unread = reader._next()
        return chunks.on_unread and reader.test_cursor(self._begin)

    # ---- following -------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Descriptor that becomes readable when the journal changes. JournalUnavailableError when it is not open."""
        return self._attached()[0].fileno()

    def process(self) -> None:
        """Take notice of changes to the journal's files, which makes the descriptor unreadable again.

        `drain` does it too: whatever libsystemd says has changed, draining is what follows.
        """
        if self._reader is not None:
            try:
                self._reader.process()
            except DAMAGED as error:
                log.debug("journal of %s: process: %s", self.selection, error)

    def cursor(self) -> str | None:
        """The last entry that was read and handed on: what to give to `open` next time. None before the first."""
        return self._cursor

    def drain(self, budget_seconds: float, handler: Handler) -> DrainResult:
        """Read what there is, for the budget and at most a chunk more; call `handler` in order for what is of interest.

        JournalUnavailableError when `open` has not succeeded yet. What the handler raises is passed on.
        """
        if not self._started:
            raise JournalUnavailableError("the journal is not open")
        result = DrainResult()
        now = self._clock()
        deadline = now + budget_seconds
        if self._reader is None:
            if now < self._retry_at:
                result.failure = "waiting before the next attempt"
                return result
            if not self._reopen(result):
                return result
        self.process()
        result.more = True
        while result.more:
            try:
                result.more = self._hand_on_chunk(result, handler)
            except _IterationError as error:
                result.more = self._recover(str(error), result)
            if self._clock() >= deadline:
                break
        return result

    def stale_check(self) -> bool:
        """Open the journal anew when its folder has changed while the reader stayed silent; True when that was done.

        libsystemd does not see files in a folder that was deleted and made anew, nor folders that come later. To be
        called every few seconds; after True `fileno()` is another descriptor.
        """
        if self._reader is None or self._clock() - self._last_read < SILENCE_SECONDS:
            return False
        if listing(self.selection) == self._listing:
            return False
        return self._reopen(DrainResult())

    def _hand_on_chunk(self, result: DrainResult, handler: Handler) -> bool:
        """Read a chunk of entries and hand them on. True when there may be more."""
        reader, chunks = self._attached()
        mark = self._cursor
        chunk = chunks.read()
        if chunks.split is None and chunk.entries and (flags := chunks.split_flags()):
            # Some line was split, maybe one of ours: read the chunk again, now looking at every entry's flags.
            chunks.split = SplitLines(flags)
            try:
                self._go_back(mark)
            except DAMAGED as error:
                raise _IterationError(str(error)) from error
            chunk = chunks.read()
        if chunk.read:
            result.read += chunk.read
            result.malformed += chunk.malformed
            result.newest = chunk.newest or result.newest
            try:
                self._cursor = reader._get_cursor()
            except DAMAGED:
                chunk.error = chunk.error or "the position cannot be told"
            self._last_read = self._clock()
            self._failures = 0
        for entry in chunk.entries:
            handler(entry)
            result.continued += entry.continued
            if entry.unit_event is None:
                result.wanted += 1
            else:
                result.unit_events += 1
        if chunk.error is not None:
            raise _IterationError(chunk.error)
        return not chunk.ended

    # ---- recovery --------------------------------------------------------------------------------------------------

    def _recover(self, why: str, result: DrainResult) -> bool:
        """Go on after libsystemd could not: at the same place, then behind it; False when both have failed."""
        self._failures += 1
        log.warning("journal of %s: reading failed (%s)", self.selection, why)
        if self._failures > 2:
            self._give_up_for_now(why, result)
            return False
        return self._reopen(result, skip=self._failures == 2)

    def _reopen(self, result: DrainResult, *, skip: bool = False) -> bool:
        """Open anew after the last entry read; with `skip`, beyond what is damaged there. False when that fails."""
        self.close()
        try:
            reader, chunks = self._attach()
            if skip and self._cursor is not None:
                chunks.on_unread = seek_beyond(reader, self._cursor)
                result.gap = True
            elif not self._go_back(self._cursor):
                result.gap = True
        except (JournalUnavailableError, *DAMAGED) as error:
            self._failures += 1
            self._give_up_for_now(str(error), result)
            return False
        result.reopened = True
        return True

    def _give_up_for_now(self, why: str, result: DrainResult) -> None:
        self.close()
        wait = min(FIRST_RETRY_SECONDS * 2.0 ** min(self._failures - 1, 10), LAST_RETRY_SECONDS)
        self._retry_at = self._clock() + wait
        result.failure = why


class _IterationError(Exception):
    """libsystemd cannot go to the next entry."""
