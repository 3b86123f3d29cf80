"""Follows a log file over rotation, copy-truncate, deletion and packing, each line once, also over restarts.

What a file is shows in its content (see `log_mark`). After each chunk it is made sure that the file still begins as it
did; if not, it was emptied, and the rest of what it held is looked for in its copies. A file that was renamed is
read on until another one has its name and something in it: its writer may keep it open for long.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from kvexporter.sources.drain import DrainResult, Handler, Seek
from kvexporter.sources.journal_chunk import Wanted
from kvexporter.sources.journal_library import JournalUnavailableError
from kvexporter.sources.journal_position import JournalStart
from kvexporter.sources.log_access import file_problem
from kvexporter.sources.log_content import DamagedLogError, LogContent, StillUnpackingError
from kvexporter.sources.log_cutter import LineCutter
from kvexporter.sources.log_family import live_member
from kvexporter.sources.log_lines import MAX_LINE
from kvexporter.sources.log_mark import HEAD_BYTES, LogMark, parse_log_mark
from kvexporter.sources.log_rotation import Search
from kvexporter.sources.log_selection import LogFileSelection

log = logging.getLogger(__name__)

CHUNK_BYTES = MAX_LINE


class LogTail:
    """Reads the lines of a log file, oldest first, from where `open` starts. `clock` gives unix seconds."""

    def __init__(
        self,
        selection: LogFileSelection,
        wanted: Wanted,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wanted` sees every line first; what it makes of it goes with the entry, and other lines are passed over."""
        self.selection = selection
        self._wanted = wanted
        self._clock = clock
        self._monotonic = monotonic
        self._seek: Seek = "invocation"
        self._opened = False
        self._content: LogContent | None = None
        self._mark: LogMark | None = None
        """What was read and handed on; None: nothing yet."""
        self._here = LogMark(0, 0)
        """The same in the content that is read; not kept before a line of it was handed on."""
        self._copy = False
        """The content is a copy of a file that was emptied, so what follows it may begin inside a line."""
        self._end = 0
        """How far the writer had come at least, as far as copies tell."""
        self._cutter = LineCutter(wanted)
        self._looked: tuple[int, int] | None = None
        """Size and time of the content when all of it had been read."""
        self._begins = self._here
        """How the content began when it was opened, to know it again before anything of it was handed on."""
        self._nuls: int | None = None
        """How far the content is known to be nothing but NULs, while its first data is looked for."""
        self._gap_after: tuple[LogMark | None] | None = None
        """Behind which place a gap was counted last."""
        self._search = Search(selection.path)

    # ---- opening and closing ---------------------------------------------------------------------------------------

    def open(self, position: str | None = None, *, seek: Seek = "invocation") -> JournalStart:
        """Choose where to start: after `position` when given, else at the beginning of the file ("invocation") or of
        the oldest one that rotation has left ("head"). The file need not be there yet.
        """
        self.close()
        self._seek, self._opened, self._mark, self._gap_after = seek, True, None, None
        self._forget()
        refused = False
        if position is not None:
            try:
                self._mark = parse_log_mark(position)
            except ValueError:
                log.warning("%s: the stored position is unusable: reading starts anew", self.selection)
                refused = True
        return JournalStart("position" if self._mark is not None else "head", position_refused=refused)

    def close(self) -> None:
        """Close what is open."""
        self._opened = False
        self._search.close()
        self._let_go()

    def fileno(self) -> int:
        """A file announces nothing: JournalUnavailableError."""
        raise JournalUnavailableError("a file does not announce what is written to it")

    def announces(self) -> bool:
        """Never."""
        return False

    def stale_check(self) -> bool:
        """Nothing to do: each drain looks what has become of the file."""
        return False

    def position(self) -> str | None:
        """What was read and handed on: what to give to `open` next time. None before the first line."""
        return None if self._mark is None else str(self._mark)

    def _let_go(self) -> None:
        content, self._content = self._content, None
        if content is not None:
            content.close()

    def _forget(self) -> None:
        self._copy, self._looked, self._end, self._nuls = False, None, 0, None
        self._cutter = LineCutter(self._wanted, newest=self._cutter.newest)

    # ---- following -------------------------------------------------------------------------------------------------

    def drain(self, budget_seconds: float, handler: Handler) -> DrainResult:
        """Read what there is, for the budget and at most a chunk more; call `handler` in order for what is of interest.

        JournalUnavailableError when `open` has not been called. What the handler raises is passed on.
        """
        if not self._opened:
            raise JournalUnavailableError("the log file is not open")
        result = DrainResult()
        deadline = self._monotonic() + budget_seconds
        try:
            while self._step(result, handler):
                if self._monotonic() >= deadline:
                    result.more = True
                    break
        except OSError as error:
            self._let_go()
            result.failure = _why(error, self.selection.path)
        return result

    def _step(self, result: DrainResult, handler: Handler) -> bool:
        """Read a chunk, or come nearer to what is to be read; False when there is nothing more for now."""
        try:
            return self._chunk(result, handler)
        except StillUnpackingError:
            return True

    def _chunk(self, result: DrainResult, handler: Handler) -> bool:
        try:
            if self._content is None and not self._place(result):
                return False
            content = self._content
            return content is not None and self._read_on(content, result, handler)
        except DamagedLogError as error:
            return self._pass_over(error, result)

    def _pass_over(self, damage: DamagedLogError, result: DrainResult) -> bool:
        """Go on behind a damaged file, and those behind it that cannot even be begun, as soon as there is another."""
        problems = [str(damage)]
        while (content := self._content) is not None:
            following = self._search.next_content(content, self._here).content
            if following is None:
                break
            # What follows a loss begins with a whole line.
            self._cutter = LineCutter(self._wanted, newest=self._cutter.newest)
            try:
                self._go_on(following, 0, result)
            except DamagedLogError as error:
                problems.append(str(error))
                continue
            self._lost(result, "; ".join(problems))
            return True
        raise damage

    def _place(self, result: DrainResult) -> bool:
        """Open what is to be read; False when there is nothing yet, which is no failure if the file is only empty."""
        self._forget()
        mark = self._mark
        if mark is None:
            content = self._search.first() if self._seek == "head" else self._search.live()
            if content is None:
                result.failure = _missing(self.selection.path)
                return False
            self._begin(content)
            return True
        found = self._search.holder(mark)
        if found.content is not None:
            self._content, self._here, self._copy = found.content, mark, found.is_copy
            self._cutter = LineCutter(self._wanted, inside=mark.inside, pieces=mark.pieces, newest=self._cutter.newest)
            if found.is_copy:
                log.info("%s was emptied: the rest of what it held is in %s", self.selection.path, found.name)
            return True
        if found.wait:
            result.complete = not found.missing
            result.failure = _missing(self.selection.path) if found.missing else None
            return False
        content = self._search.after_loss(mark)
        if content is None:
            result.failure = _missing(self.selection.path)
            return False
        self._begin(content)
        if content.identity == mark.identity and 0 < self._here.start <= mark.offset:
            log.info("%s was emptied when all of it had been read", self.selection.path)
        else:
            self._lost(result, found.why)
        return True

    def _lost(self, result: DrainResult, why: str) -> None:
        """Count a gap: one, whatever is found lost, and however often, between two lines that are handed on."""
        if self._gap_after != (self._mark,):
            result.gap = True
        self._gap_after = (self._mark,)
        log.warning("%s: lines may have been lost: %s", self.selection.path, why)

    def _begin(self, content: LogContent) -> None:
        """Read another content from its first byte that is not NUL."""
        self._content, self._looked, self._here = content, None, LogMark(*content.identity)
        self._nuls = 0
        self._find_data(content)

    def _find_data(self, content: LogContent) -> None:
        """Look for the first byte that is not NUL, a while at a time."""
        start, self._nuls = content.first_data(self._nuls or 0)
        if self._nuls is not None:
            return
        start = start or 0
        self._here = here = LogMark(*content.identity, offset=start, start=start)
        self._begins = here.after(content.read(start, HEAD_BYTES), 0)

    def _read_on(self, content: LogContent, result: DrainResult, handler: Handler) -> bool:
        """Read a chunk; False when there is nothing more for now."""
        if self._nuls is not None:
            self._find_data(content)
            return True
        status = content.status()
        if not content.packed and self._looked == (status.st_size, status.st_mtime_ns):
            return self._at_end(content, result, handler, None)
        here = self._here
        data = content.read(here.offset - here.known, here.known + CHUNK_BYTES)
        status = content.status()
        same = content.packed or (here.continues(data) and content.still_begins(here if here.head else self._begins))
        if not same:
            self._let_go()  # it was emptied; where its lines are now is found out next
            return True
        if not content.packed and not here.head and (here.start or data[:1] == b"\0"):
            self._begin(content)
            if self._here.start != here.start:
                return True
            if data[:1] == b"\0":  # nothing else yet
                return self._at_end(content, result, handler, b"")
        used = self._take(data[here.known :], status.st_mtime_ns, result, handler)
        if used:
            self._advance(data[: here.known + used], status.st_mtime_ns)
            return True
        self._looked = (status.st_size, status.st_mtime_ns)
        return self._at_end(content, result, handler, data[here.known :])

    def _take(self, fresh: bytes, modified: int, result: DrainResult, handler: Handler) -> int:
        now = self._clock()
        # Lines that tell no time were written by then.
        return self._cutter.take(fresh, now, min(now, modified / 1e9), result, handler)

    def _advance(self, data: bytes, modified: int) -> None:
        here = replace(self._here.after(data, modified), inside=self._cutter.inside, pieces=self._cutter.pieces)
        if self._copy and self._mark is not None:
            here = replace(here, device=self._mark.device, inode=self._mark.inode)
        self._here = self._mark = here

    # ---- the end of a file -------------------------------------------------------------------------------------------

    def _at_end(self, content: LogContent, result: DrainResult, handler: Handler, rest: bytes | None) -> bool:
        """All has been read but `rest`, which is no whole line (None: as before). True when another file goes on."""
        live = live_member(self.selection.path)
        if live is not None and live.identity == content.identity:
            result.complete = True
            return False
        found = self._search.next_content(content, self._here)
        following = found.content
        if following is None:
            result.complete = True
            return False
        if found.is_copy:
            self._change_to(following)
            return True
        try:
            # Once more: what was written last, before its writer went on in the other file.
            last = content.read(self._here.offset, CHUNK_BYTES)
            if not self._here.head:
                last = last.lstrip(b"\0")  # a file of nothing else, as a power failure leaves them
            if last != rest and (rest is not None or b"\n" in last or self._cutter.inside):
                self._looked = None
                following.close()
                return True
            self._finish(content, last, result, handler)
        except BaseException:
            following.close()
            raise
        self._go_on(following, len(last), result)
        if found.lost:
            self._lost(result, found.lost)
        return True

    def _change_to(self, copy: LogContent) -> None:
        """Read on at the same place in a copy that stands where the file was."""
        self._let_go()
        self._content, self._looked = copy, None
        device, inode = copy.identity
        self._here = replace(self._here, device=device, inode=inode)
        if self._mark is not None:
            self._mark = replace(self._mark, device=device, inode=inode)
        log.info("%s was replaced by a copy of it: reading goes on there", self.selection.path)

    def _finish(self, content: LogContent, rest: bytes, result: DrainResult, handler: Handler) -> None:
        """Take what was written last: a line without an end, or the beginning of one that goes on."""
        cutter = self._cutter
        if self._copy:
            cutter.carried = (cutter.carried + rest)[:MAX_LINE]
            return
        if rest or cutter.carried:
            modified, known = content.status().st_mtime_ns, self._here.known
            self._take(rest + b"\n", modified, result, handler)
            self._advance(content.read(self._here.offset - known, known) + rest, modified)
        cutter.inside = False

    def _go_on(self, following: LogContent, rest: int, result: DrainResult) -> None:
        """Read the file that follows the current one."""
        # One that writes at its own place writes on behind all that was there before.
        end = self._end = max(self._end, self._here.offset + rest)
        is_copy = self._copy
        self._let_go()
        self._begin(following)
        reached = self._mark is not None and following.identity == self._mark.identity
        if is_copy and reached and self._here.start > end:
            self._lost(result, f"{self._here.start - end} bytes were written between its copying and its emptying")
        self._copy = is_copy and not reached


def _missing(path: str) -> str:
    return file_problem(path) or f"there is no file {path}: it is read as soon as it is there"


def _why(error: OSError, path: str) -> str:
    problem = file_problem(path) if isinstance(error, PermissionError) else None
    return problem or f"{error.filename or path}: {error.strerror or error}"
