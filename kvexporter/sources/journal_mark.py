"""How far a journal has been read, as text that survives restarts.

A cursor alone does not do: when the journal moves from /run to /var every entry gets another number in another file, so
the cursor matches nothing any more. What an entry keeps is its boot and its times; and because journald gives all lines
of one burst the same times, the mark also tells how many of them were handed on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kvexporter.facts import JournalEntry

_CURSOR = re.compile(
    r"s=(?P<s>[0-9a-f]{32});i=(?P<i>[0-9a-f]{1,16});b=(?P<b>[0-9a-f]{32})"
    r";m=(?P<m>[0-9a-f]{1,16});t=(?P<t>[0-9a-f]{1,16});x=[0-9a-f]{1,16}"
)
_COUNTS = re.compile(r"(?P<alike>[0-9]{1,9}) (?P<complete>[0-9]{1,18})")

_LATE_SECONDS = 10
"""An entry is visible sooner than this after its time."""
_COMPLETE_SECONDS = 600
"""How finely it is told up to when all has been read: each change is written to the disk."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a cursor says of its entry. Numbers rise within one source; times rise within one boot."""

    source: str
    number: int
    boot: str
    monotonic: int
    realtime: int
    """Microseconds since 1970."""

    @property
    def moment(self) -> str:
        """A cursor of the first entry with these times, in whatever file."""
        return f"b={self.boot};m={self.monotonic:x};t={self.realtime:x}"

    def is_copy_of(self, other: Place) -> bool:
        """Of the same moment, but in another file: one of the two has been copied."""
        return self.source != other.source and self._times() == other._times()

    def comes_again(self, last: Place) -> bool:
        """Of the `last` read entry's boot, and not later, but in another file: it was read where it was before."""
        return self.source != last.source and self.boot == last.boot and self.monotonic <= last.monotonic

    def _times(self) -> tuple[str, int, int]:
        return self.boot, self.monotonic, self.realtime


def place(cursor: str) -> Place:
    """Read a cursor. ValueError when it is none that journald's own entries have."""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise ValueError("not a journal cursor")
    return Place(found["s"], int(found["i"], 16), found["b"], int(found["m"], 16), int(found["t"], 16))


@dataclass(frozen=True, slots=True)
class Mark:
    """The last entry that was read and handed on."""

    cursor: str
    alike: int = 0
    """Entries of interest that were handed on with just its time, itself included."""
    complete: int = 0
    """Everything stored up to then has been read (microseconds since 1970)."""

    def __str__(self) -> str:
        return f"{self.cursor} {self.alike} {self.complete}"


def parse_mark(text: str) -> Mark:
    """Read what str(Mark) gave. ValueError when it is nothing of the kind."""
    cursor, _, counts = text.partition(" ")
    place(cursor)
    found = _COUNTS.fullmatch(counts)
    if found is None:
        raise ValueError("not a journal position")
    return Mark(cursor, int(found["alike"]), int(found["complete"]))


class Progress:
    """Follows how far reading has come, chunk by chunk."""

    def __init__(self, mark: Mark | None = None) -> None:
        """`mark`: where an earlier reader stopped."""
        self.mark = mark
        """None: nothing has been read yet."""
        self.begin: str | None = None
        """Cursor of the entry at which reading begins while there is no mark; None: at the oldest."""
        self.last: Place | None = None
        """Of the entry read last, or of its copy after a move; None: not known."""
        self._run: tuple[float | None, int] = (None, 0)
        """A time, and the entries of interest read with just this time at the end of what was read."""
        self._again = 0
        """So many entries of the mark's time come again."""

    def resume(self) -> None:
        """Reading goes on right after the mark."""
        self._run, self._again = (self._stamp, self.mark.alike if self.mark is not None else 0), 0

    def repeat(self) -> None:
        """Reading goes on at the first entry of the mark's time: those that were handed on are not to be again."""
        self._run, self._again = (self._stamp, 0), self.mark.alike if self.mark is not None else 0

    def leap(self) -> None:
        """Reading goes on somewhere behind the mark."""
        self._run, self._again = (None, 0), 0

    def advance(self, cursor: str, entries: list[JournalEntry], newest: float | None) -> None:
        """Entries of interest were read, up to the one of `cursor` and time `newest`: what is not new is taken out."""
        first = len(entries)
        while first and entries[first - 1].at == newest:
            first -= 1
        alike = len(entries) - first
        if first == 0 and newest == self._run[0]:
            alike += self._run[1]
        self._run = (newest, alike)
        if self._again:
            self._take_out(entries)
            if newest != self._stamp:
                self._again = 0
        if not self._again:
            self.mark = Mark(cursor, alike, self.mark.complete if self.mark is not None else 0)

    def complete(self, seconds: float) -> None:
        """All that was stored up to this time (unix seconds) has been read."""
        if self.mark is not None:
            rounded = (seconds - _LATE_SECONDS) // _COMPLETE_SECONDS * _COMPLETE_SECONDS
            complete = int(rounded) * 1_000_000
            if complete != self.mark.complete:
                self.mark = replace(self.mark, complete=complete)

    def _take_out(self, entries: list[JournalEntry]) -> None:
        known = 0
        while known < min(self._again, len(entries)) and entries[known].at == self._stamp:
            known += 1
        del entries[:known]
        self._again -= known

    @property
    def _stamp(self) -> float | None:
        return place(self.mark.cursor).realtime / 1e6 if self.mark is not None else None
