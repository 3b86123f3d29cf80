"""Follows one server's journal entries with systemd's low-level reader: fast, resumable, and through every rotation.

One reader belongs to one thread. Damaged entries are counted and passed over, and when libsystemd cannot go on, the
journal is opened anew at the last entry read. So it is when the journal moves from /run to /var; while it moves, both
places have the same entries, and reading waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from kvexporter.sources.cgroup_path import own_unit
from kvexporter.sources.drain import WAITING, DrainResult, Handler, Seek
from kvexporter.sources.journal_chunk import CHUNK_ENTRIES, DAMAGED, Chunk, ChunkReader, Wanted, always
from kvexporter.sources.journal_folders import in_both_places, listing
from kvexporter.sources.journal_library import JournalUnavailableError, LowLevelReader, open_journal
from kvexporter.sources.journal_mark import Progress, parse_mark
from kvexporter.sources.journal_opened import IterationError, MovingError, OpenedJournal
from kvexporter.sources.journal_position import JournalStart, current_run_start, nothing_lost
from kvexporter.sources.journal_selection import JournalSelection

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 60.0
SILENCE_SECONDS = 5.0
"""How long a reader must have been silent before a changed folder makes it suspect."""

NOTICE_SECONDS = 30.0
"""How long changes to the files may go unnoticed while a backlog is read: until then deleted ones can still be read."""
MOVING_SECONDS = 30.0
"""How long to wait for the journal's move from /run to /var, which takes a second."""

_BOTH = (True, True)


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
        self._journal: OpenedJournal | None = None
        self._started = False
        self._progress = Progress()
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
            start = self._open_at_mark()
        else:
            begin = self._progress.begin = current_run_start(self.selection) if seek == "invocation" else None
            self._attach().go_back()
            start = JournalStart("head" if begin is None else "invocation", position_refused=refused)
        self._started = True
        return start

    def _open_at_mark(self) -> JournalStart:
        """Open after the mark that an earlier reader left."""
        journal = self._attach()
        try:
            there = journal.go_back()
        except DAMAGED as damage:
            log.warning("journal of %s: damaged where reading is to go on (%s)", self.selection, damage)
            try:
                journal.go_beyond()
            except DAMAGED as error:
                self.close()
                raise JournalUnavailableError(f"the journal is damaged from here on: {error}") from error
            return JournalStart("gap")
        return JournalStart("position" if there or self._nothing_lost() else "gap")

    def close(self) -> None:
        """Close the journal, if open."""
        if self._journal is not None:
            journal, self._journal = self._journal, None
            journal.close()

    def _attach(self) -> OpenedJournal:
        self._listing = self._known = listing(self.selection)  # before opening: what changes in between is noticed
        self._places = in_both_places(self._listing)
        self._moving_since = None
        reader = self._open_journal(self.selection)
        chunks = ChunkReader(reader, self.selection.about, self._wanted, self._own_pid, self._writers_from)
        self._journal = OpenedJournal(reader, chunks, self._progress)
        self._last_read = self._noticed_at = self._clock()
        return self._journal

    def _attached(self) -> OpenedJournal:
        if self._journal is None:
            raise JournalUnavailableError("the journal is not open")
        return self._journal

    # ---- following -------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Descriptor that becomes readable when the journal changes. JournalUnavailableError when it is not open."""
        return self._attached().fileno()

    def announces(self) -> bool:
        """Whether that tells of every change. JournalUnavailableError when it is not open."""
        return self._attached().announces()

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
        if self._journal is None:
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
        """Have libsystemd look at the files. True when some came or went."""
        try:
            return self._journal is not None and self._journal.process()
        except DAMAGED as error:
            log.debug("journal of %s: process: %s", self.selection, error)
            return False

    def _read_on(self, result: DrainResult, handler: Handler) -> bool:
        """Read and hand on a chunk, recovering from what goes wrong. True when there may be more."""
        twice = self._places == _BOTH
        # One by one where each entry's place matters.
        limit = 1 if twice or self._failures else CHUNK_ENTRIES
        try:
            chunk = self._attached().read(limit, twice=twice, copies_stay=self._copies_stay)
        except MovingError:
            log.info("journal of %s: it is being moved from /run to /var: waiting for the end of that", self.selection)
            self._moving_since = self._clock()
            return False
        except IterationError as error:
            return self._recover(str(error), result)
        self._hand_on(chunk, result, handler)
        return not chunk.ended if chunk.error is None else self._recover(chunk.error, result)

    def _hand_on(self, chunk: Chunk, result: DrainResult, handler: Handler) -> None:
        if chunk.read:
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

    def stale_check(self) -> bool:
        """Open the journal anew when its folder has changed while the reader stayed silent; True when that was done.

        libsystemd does not see files in a folder that was deleted and made anew, nor folders that come later. To be
        called every few seconds; after True `fileno()` is another descriptor.
        """
        if self._journal is None or self._clock() - self._last_read < SILENCE_SECONDS:
            return False
        if listing(self.selection) == self._listing:
            return False
        result = DrainResult()
        reopened = self._reopen(result)
        self._missed = result.gap
        return reopened

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
            journal = self._attach()
            if skip and self._progress.mark is not None:
                journal.go_beyond()
                result.gap = True
            elif not journal.go_back():
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
        self._progress.begin = current_run_start(self.selection)
        return self._attached().go_back()

    def _give_up_for_now(self, why: str, result: DrainResult) -> None:
        self.close()
        wait = min(FIRST_RETRY_SECONDS * 2.0 ** min(self._failures - 1, 10), LAST_RETRY_SECONDS)
        self._retry_at = self._clock() + wait
        result.failure = why
