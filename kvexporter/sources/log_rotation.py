"""Finds what is to be read of a family of log files: who holds a place that was read, and what follows a file."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from kvexporter.sources.log_content import DamagedLogError, LogContent, StillUnpackingError
from kvexporter.sources.log_family import Member, family
from kvexporter.sources.log_mark import HEAD_BYTES, TAIL_BYTES, LogMark

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """Who holds a place. Without content nobody does: now, if it is worth to `wait`, else for ever."""

    content: LogContent | None = None
    name: str = ""
    is_copy: bool = False
    """The file itself has been emptied, and this one is a copy of what it held."""
    wait: bool = False
    missing: bool = False
    """There is no file of the name at all."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Following:
    """What was written after a content; without one of its own there is nothing yet."""

    content: LogContent | None = None
    is_copy: bool = False
    """It is a copy of the content in the live file's place, with more in it: see `replaces`."""
    lost: str = ""
    """Why lines between the two may have been lost."""


class Search:
    """Looks through the family of one path. To look far into a packed file takes many steps: what meets one on its way
    raises StillUnpackingError, and goes on there when it is called again.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._looks_into = _LooksInto()
        self._in_vain: tuple[LogMark, list[Member]] | None = None
        self._nothing_after: tuple[LogMark, list[Member]] | None = None
        self._cut_off: frozenset[_Stored] = frozenset()
        """Of the mark that was looked for last: see `_LooksInto.cut_off`."""

    def close(self) -> None:
        """Give up what has been begun."""
        self._looks_into.over()

    def live(self) -> LogContent | None:
        """The live file; None if there is none. OSError when it cannot be read."""
        try:
            return LogContent(self._path)
        except FileNotFoundError:
            return None

    def first(self) -> LogContent | None:
        """The oldest file that rotation has left."""
        for member in family(self._path):
            if member.scheme != "other" and member.size and (content := _open(member)) is not None:
                return content
        return self.live()

    def holder(self, mark: LogMark) -> Found:
        """Who has what was read up to the mark: the file itself, whatever it is called now, or a copy of it."""
        members = family(self._path)
        found = self._holder(mark, members)
        self._looks_into.over()
        return found

    def _holder(self, mark: LogMark, members: list[Member]) -> Found:
        live = members[-1] if members and members[-1].scheme is None else None
        if live is None and not members:
            return Found(wait=True, missing=True)
        if self._in_vain != (mark, members):
            newest_first = members[::-1]
            near = sorted(newest_first, key=lambda member: (member.identity != mark.identity, member is not live))
            problems = []
            for member in near:
                try:
                    if (content := self._looks_into.holder(member, mark)) is not None:
                        emptied = any(other.identity == mark.identity != member.identity for other in members)
                        return Found(content, member.path, emptied)
                except OSError as error:
                    if member is live:
                        raise
                    problems.append(f"{member.path}: {error.strerror or error}")
            if problems:
                log.warning("%s: not all of its older files could be looked into: %s", self._path, "; ".join(problems))
            self._in_vain, self._cut_off = (mark, members), frozenset(self._looks_into.cut_off)
        if live is None or not live.size:
            # An emptied file tells by its first bytes whether anything was lost; a new one is read from its first.
            return Found(wait=True, missing=live is None)
        if live.identity == mark.identity:
            return Found(why="it was emptied, and no copy of what it held was found")
        if self._cut_off:
            return Found(why="the file that was read last is damaged before the place where it was left")
        return Found(why="the file that was read last was not found again")

    def after_loss(self, mark: LogMark) -> LogContent | None:
        """The oldest file that was written to after the mark was left: nothing of it has been read.

        To be asked when `holder` has found nobody.
        """
        members = family(self._path)
        return _first_open(_later(_behind(members, self._cut_off, mark.modified), mark.modified))

    def next_content(self, content: LogContent, mark: LogMark) -> Following:
        """What was written after a content that was read up to the mark."""
        members = family(self._path)
        at = next((n for n, member in enumerate(members) if member.identity == content.identity), None)
        unnumbered = at is None or members[at].scheme == "other"
        if unnumbered and self._nothing_after != (mark, members) and (live := self.live()) is not None:
            copied, size = replaces(live, content, mark), live.status().st_size
            if copied and size > mark.offset:
                return Following(live, is_copy=True)
            live.close()
            if copied:
                self._nothing_after = (mark, members)
                return Following()
        unread, lost = members, ""
        if at is None and self._nothing_after != (mark, members):
            # It was deleted, maybe because it was packed.
            at = next((n for n, member in enumerate(members) if self._looks_into.holds(member, mark)), None)
            if at is None:
                unread = _behind(members, self._looks_into.cut_off, content.status().st_mtime_ns)
                lost = "" if unread is members else "a file that may hold more than was read cannot be unpacked"
            self._looks_into.over()
        if at is not None and members[at].scheme != "other":
            following = _first_open([member for member in members[at + 1 :] if member.size])
        elif self._nothing_after != (mark, members):
            following = _first_open(_later(unread, content.status().st_mtime_ns))
        else:
            following = None
        self._nothing_after = (mark, members) if following is None else None
        return Following(following, lost=lost)


def replaces(live: LogContent, content: LogContent, mark: LogMark) -> bool:
    """Whether the live file is a copy of a content read up to the mark, as far as both go: `sed -i` and `cp` with `mv`
    leave such files. What is in it was read already. OSError when one of them cannot be read.
    """
    if live.identity == content.identity or live.packed or content.packed:
        return False  # going back in a packed one means to unpack all of it
    end = min(live.status().st_size, mark.offset)
    if end <= mark.start:
        return False
    head, tail = min(HEAD_BYTES, end - mark.start), min(TAIL_BYTES, end)
    places = ((mark.start, head), (end - tail, tail))
    return all(live.read(*place) == content.read(*place) for place in places)


def _behind(members: list[Member], cut_off: Collection[_Stored], modified: int) -> list[Member]:
    """Files behind the one that may be what was read last: a packed one that begins like it, is damaged before that
    place and was written to after that moment. What can be unpacked of it was read, and so was all that is older.
    """
    for at, member in enumerate(members):
        if member.scheme != "other" and member.modified > modified and _stored(member) in cut_off:
            return members[at + 1 :]
    return members


def _later(members: list[Member], modified: int) -> list[Member]:
    """Files written to after a moment (nanoseconds since 1970), and the live one."""
    return [m for m in members if m.size and (m.scheme is None or (m.scheme != "other" and m.modified > modified))]


_Stored = tuple[tuple[int, int], int, int]


def _stored(member: Member) -> _Stored:
    """What stays when a file is renamed, and is no longer the same when its inode is used again."""
    return member.identity, member.size, member.modified


class _LooksInto:
    """Looks into files for what was read up to a mark; one look through a family may take many calls."""

    def __init__(self) -> None:
        self._mark: LogMark | None = None
        self._begun: LogContent | None = None
        """Is being unpacked on the way to the mark."""
        self._known: dict[Member, OSError | None] = {}
        """Packed files in which it was not found, or why they cannot be read: to find that out may have taken long."""
        self.cut_off: set[_Stored] = set()
        """Files that begin as the mark's, and cannot be unpacked as far as the mark."""

    def over(self) -> None:
        """The look is over: the next one begins anew."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.close()
        self._known.clear()
        self.cut_off.clear()

    def holder(self, member: Member, mark: LogMark) -> LogContent | None:
        """Open a file that has what was read up to the mark; None if it has not. OSError when it cannot be read."""
        if self._mark != mark:
            self.over()
            self._mark = mark
        if member in self._known:
            problem = self._known[member]
            if problem is not None:
                raise problem.with_traceback(None)
            return None
        content = self._opened(member)
        try:
            if content.holds(mark):
                return content
        except StillUnpackingError:
            if self._begun is not None:
                self._begun.close()
            self._begun = content
            raise
        except BaseException as error:
            content.close()
            if isinstance(error, OSError) and content.packed:
                self._known[member] = error
                if isinstance(error, DamagedLogError) and content.begins_like(mark):
                    self.cut_off.add(_stored(member))
            raise
        content.close()
        if content.packed:
            self._known[member] = None
        return None

    def _opened(self, member: Member) -> LogContent:
        begun = self._begun
        if begun is None or begun.identity != member.identity:
            return LogContent(member.path)
        self._begun = None
        return begun

    def holds(self, member: Member, mark: LogMark) -> bool:
        """Whether it has what was read up to the mark; not, if it cannot be read."""
        try:
            content = self.holder(member, mark)
        except OSError:
            return False
        if content is not None:
            content.close()
        return content is not None


def _first_open(members: list[Member]) -> LogContent | None:
    for member in members:
        content = _open(member)
        if content is not None:
            return content
    return None


def _open(member: Member) -> LogContent | None:
    """Open a file unless it was renamed or deleted a moment ago. OSError when it cannot be opened."""
    try:
        content = LogContent(member.path)
    except FileNotFoundError:
        return None
    if content.identity != member.identity:
        content.close()
        raise OSError(f"{member.path} was replaced just now")
    return content
