"""Follows one server's journal entries with systemd's low-level reader: fast, resumable, and through every rotation.

One reader belongs to one thread. Damaged entries are counted and passed over, and when libsystemd cannot go on, the
journal is opened anew at the last entry read. So it is when the journal moves from /run to /var; while it moves, both
places have the same entries, and reading waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kvexporter.facts import JournalEntry
from kvexporter.sources.cgroup_path import own_unit
from kvexporter.sources.journal_chunk import CHUNK_ENTRIES, DAMAGED, ChunkReader, Wanted, always
from kvexporter.sources.journal_folders import in_both_places, listing
from kvexporter.sources.journal_library import JournalUnavailableError, LowLevelReader, open_journal
from kvexporter.sources.journal_mark import Mark, Place, Progress, parse_mark, place
from kvexporter.sources.journal_position import (
    JournalStart,
    current_run_start,
    nothing_lost,
    seek_after,
    seek_beyond,
)
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.split_lines import SplitLines

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 60.0
WAITING = "waiting before the next attempt"
"""A failure that goes on: why was said before."""
SILENCE_SECONDS = 5.0
"""How long a reader must have been silent before a changed folder makes it suspect."""

NOTICE_SECONDS = 30.0
"""How long changes to the files may go unnoticed while a backlog is read: until then deleted ones can still be read."""
MOVING_SECONDS = 30.0
"""How long to wait for the journal's move from /run to /var, which takes a second."""

_INVALIDATE = 2  # SD_JOURNAL_INVALIDATE: files have come or gone
_BOTH = (True, True)

Handler = Callable[[JournalEntry], object]
Seek = Literal["invocation", "head"]
"""Where to start without a cursor: at the start of the unit's current invocation, or at the oldest entry."""


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
    complete: bool = False
    """Nothing was left to read."""
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
        wanted: Wanted,
        *,
        own_pid: int | None = None,
        writers_from: Callable[[], float] = always,
        opener: Callable[[JournalSelection], LowLevelReader] = open_journal,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wanted` sees every message first and must be cheap; what it makes of a message goes with the entry.

        `own_pid`: the exporter's, whose lines, written from now on, are no server's even if the matches take them in
        (else an error it quotes would be counted again, for ever). `writers_from`: from which time on (unix seconds)
        the server's lines come with their process and invocation; older ones without are read much faster.
        """
        self.selection = selection
        self._wanted = wanted
        self._own_pid = own_pid
        # Another unit's lines cannot be the exporter's: journald tells the unit by the writer's cgroup.
        may_be_own = own_pid is not None and selection.about in (None, own_unit())
        self._writers_from = always if may_be_own else writers_from
        self._open_journal = opener
        self._clock = clock
        self._reader: LowLevelReader | None = None
        self._chunks: ChunkReader | None = None
        self._started = False
        self._begin: str | None = None
        self._progress = Progress()
        self._last: Place | None = None
        """Of the entry read last, or of its copy after a move."""
        self._listing: tuple[tuple[str, int], ...] = ()
        self._known: tuple[tuple[str, int], ...] = ()
        self._places = (False, False)
        """There are journal files in /run, and in /var."""
        self._moving_since: float | None = None
        self._copies_stay = False
        self._missed = False
        """A gap was found that no drain has told yet."""
        self._noticed_at = 0.0
        self._last_read = 0.0
        self._failures = 0
        self._retry_at = 0.0

    # ---- opening and closing ---------------------------------------------------------------------------------------

    def open(self, position: str | None = None, *, seek: Seek = "invocation") -> JournalStart:
        """Open the journal and choose where to start: after `position` when given, else at `seek`.

        JournalUnavailableError when there is no journal to open, or it is damaged at that position.
        """
        self.close()
        self._started, self._failures = False, 0
        self._begin = None
        self._progress = Progress()
        self._copies_stay = False
        refused = False
        if position is not None:
            try:
                self._progress = Progress(parse_mark(position))
            except ValueError:
                log.warning("the stored position in the journal of %s is unusable: reading starts anew", self.selection)
                refused = True
        if self._progress.mark is not None:
            start = self._open_at(self._progress.mark)
        else:
            self._begin = current_run_start(self.selection) if seek == "invocation" else None
            self._attach()
            self._go_back(None)
            start = JournalStart("head" if self._begin is None else "invocation", position_refused=refused)
        self._started = True
        return start

    def _open_at(self, mark: Mark) -> JournalStart:
        """Open after a mark that an earlier reader left."""
        reader, chunks = self._attach()
        try:
            there = self._go_back(mark)
        except DAMAGED as damage:
            log.warning("journal of %s: damaged where reading is to go on (%s)", self.selection, damage)
            try:
                chunks.on_unread = seek_beyond(reader, mark)
            except DAMAGED as error:
                self.close()
                raise JournalUnavailableError(f"the journal is damaged from here on: {error}") from error
            self._progress.leap()
            return JournalStart("gap")
        return JournalStart("position" if there or nothing_lost(self.selection, mark) else "gap")

    def close(self) -> None:
        """Close the journal, if open."""
        if self._reader is not None:
            reader, self._reader, self._chunks = self._reader, None, None
            reader.close()

    def _attach(self) -> tuple[LowLevelReader, ChunkReader]:
        self._listing = self._known = listing(self.selection)  # before opening: what changes in between is noticed
        self._places = in_both_places(self._listing)
        self._moving_since = None
        self._reader = self._open_journal(self.selection)
        self._chunks = ChunkReader(self._reader, self.selection.about, self._wanted, self._own_pid, self._writers_from)
        self._last_read = self._noticed_at = self._clock()
        return self._reader, self._chunks

    def _attached(self) -> tuple[LowLevelReader, ChunkReader]:
        if self._reader is None or self._chunks is None:
            raise JournalUnavailableError("the journal is not open")
        return self._reader, self._chunks

    def _go_back(self, mark: Mark | None) -> bool:
        """Position after the mark's entry, or where reading began if None; False when that entry is gone.

        OSError or ValueError when libsystemd cannot.
        """
        reader, chunks = self._attached()
        chunks.on_unread = False
        self._last = None
        if mark is not None:
            landing = seek_after(reader, mark)
            chunks.on_unread = landing.on_unread
            if landing.kind == "exact":
                self._last = place(mark.cursor)
                self._progress.resume()
                if chunks.split is not None:
                    chunks.split.continued(chunks.field)  # its line may be the one that goes on
            elif landing.kind == "moved":
                self._last = place(reader._get_cursor())
                self._progress.repeat()
            else:
                self._progress.leap()
            return landing.kind != "gone"
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

    def position(self) -> str | None:
        """The last entry that was read and handed on: what to give to `open` next time. None before the first."""
        mark = self._progress.mark
        return None if mark is None else str(mark)

    def drain(self, budget_seconds: float, handler: Handler) -> DrainResult:
        """Read what there is, for the budget and at most a chunk more; call `handler` in order for what is of interest.

        JournalUnavailableError when `open` has not succeeded yet. What the handler raises is passed on.
        """
        if not self._started:
            raise JournalUnavailableError("the journal is not open")
        result, self._missed = DrainResult(gap=self._missed), False
        deadline = self._clock() + budget_seconds
        if not self._may_read(result):
            return result
        noticed: float | None = None
        while True:
            result.more = self._read_on(result, handler)
            if result.failure is not None or self._moving_since is not None:
                break
            if result.more:
                if self._clock() >= deadline:
                    break
            elif noticed is None:
                # Only now, when all has been read: files that were deleted can no longer be read afterwards.
                noticed = time.time()
                if not self._take_notice(result):
                    break
            else:
                self._progress.complete(noticed)
                result.complete = True
                break
        return result

    def _may_read(self, result: DrainResult) -> bool:
        """Whether there is a reader to read with; opens it anew when it is time to."""
        now = self._clock()
        if self._reader is None:
            if now < self._retry_at:
                result.failure = WAITING
                return False
            return self._reopen(result)
        if self._moving_since is not None:
            self._process()
            if in_both_places(listing(self.selection)) == _BOTH:
                if now - self._moving_since < MOVING_SECONDS:
                    return False
                log.warning("journal of %s: its move from /run to /var does not end", self.selection)
                self._copies_stay = result.gap = True
            return self._reopen(result)
        if now - self._noticed_at > NOTICE_SECONDS:
            return self._take_notice(result, behind=True)
        return True

    def _take_notice(self, result: DrainResult, *, behind: bool = False) -> bool:
        """Take notice of files that have come or gone. False when the journal had to be opened anew and cannot be.

        `behind`: not all of them has been read.
        """
        self._noticed_at = self._clock()
        if not self._process():
            return True
        before, self._known = self._known, listing(self.selection)
        if behind and {inode for _, inode in before} - {inode for _, inode in self._known}:
            result.gap = True
        if in_both_places(self._known) == self._places:
            return True
        self._copies_stay = False
        return self._reopen(result)

    def _process(self) -> bool:
        """Have libsystemd look at the files, and make the descriptor unreadable again. True when some came or went."""
        try:
            return self._reader is not None and self._reader.process() == _INVALIDATE
        except DAMAGED as error:
            log.debug("journal of %s: process: %s", self.selection, error)
            return False

    def _read_on(self, result: DrainResult, handler: Handler) -> bool:
        """Read and hand on a chunk, recovering from what goes wrong. True when there may be more."""
        try:
            return self._hand_on_chunk(result, handler)
        except _MovingError:
            log.info("journal of %s: it is being moved from /run to /var: waiting for the end of that", self.selection)
            self._moving_since = self._clock()
            return False
        except _IterationError as error:
            return self._recover(str(error), result)

    def stale_check(self) -> bool:
        """Open the journal anew when its folder has changed while the reader stayed silent; True when that was done.

        libsystemd does not see files in a folder that was deleted and made anew, nor folders that come later. To be
        called every few seconds; after True `fileno()` is another descriptor.
        """
        if self._reader is None or self._clock() - self._last_read < SILENCE_SECONDS:
            return False
        if listing(self.selection) == self._listing:
            return False
        result = DrainResult()
        reopened = self._reopen(result)
        self._missed = result.gap
        return reopened

    def _hand_on_chunk(self, result: DrainResult, handler: Handler) -> bool:
        """Read a chunk of entries and hand them on. True when there may be more."""
        reader, chunks = self._attached()
        # One by one where each entry's place matters.
        limit = 1 if self._places == _BOTH or self._failures else CHUNK_ENTRIES
        chunk = chunks.read(limit)
        if chunks.split is None and chunk.entries and (flags := chunks.split_flags()):
            # Some line was split, maybe one of ours: read the chunk again, now looking at every entry's flags.
            chunks.split = SplitLines(flags)
            try:
                self._go_back(self._progress.mark)
            except DAMAGED as error:
                raise _IterationError(str(error)) from error
            chunk = chunks.read(limit)
        if chunk.read:
            try:
                cursor = reader._get_cursor()
            except DAMAGED as error:
                # Handed on without a place they would be handed on again.
                raise _IterationError(f"the position cannot be told: {error}") from error
            if self._places == _BOTH and self._is_copy(cursor):
                return True
            self._progress.advance(cursor, chunk.entries, chunk.newest)
            result.read += chunk.read
            result.malformed += chunk.malformed
            result.newest = chunk.newest or result.newest
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

    def _is_copy(self, cursor: str) -> bool:
        """Whether the entry is a copy that stays, so to be passed over. _MovingError when it may be one that moves."""
        try:
            here = place(cursor)
        except ValueError:
            return False
        if self._last is not None and here.comes_again(self._last):
            if not self._copies_stay:
                raise _MovingError
            return True
        self._last = here
        return False

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
            if skip and self._progress.mark is not None:
                chunks.on_unread = seek_beyond(reader, self._progress.mark)
                self._progress.leap()
                result.gap = True
            elif not self._go_back(self._progress.mark):
                result.gap |= not self._nothing_lost()
        except (JournalUnavailableError, *DAMAGED) as error:
            self._failures += 1
            self._give_up_for_now(str(error), result)
            return False
        result.reopened = True
        return True

    def _nothing_lost(self) -> bool:
        """Whether all is still there though the last entry read is gone."""
        if self._progress.mark is not None:
            return nothing_lost(self.selection, self._progress.mark)
        # Nothing was read yet: the run's first entry has moved, so look for it anew.
        self._begin = current_run_start(self.selection)
        return self._go_back(None)

    def _give_up_for_now(self, why: str, result: DrainResult) -> None:
        self.close()
        wait = min(FIRST_RETRY_SECONDS * 2.0 ** min(self._failures - 1, 10), LAST_RETRY_SECONDS)
        self._retry_at = self._clock() + wait
        result.failure = why


class _MovingError(Exception):
    """The journal is being moved: what was read before comes again."""


class _IterationError(Exception):
    """libsystemd cannot go to the next entry."""
