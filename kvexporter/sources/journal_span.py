"""Reads a part of a journal once, from one time up to another: for reports on what was, not for following it.

One reader belongs to one process and one thread. Damaged places are passed over and told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from kvexporter.facts import JournalEntry
from kvexporter.sources.journal_chunk import CHUNK_ENTRIES, DAMAGED, ChunkReader, Wanted
from kvexporter.sources.journal_library import LowLevelReader, open_journal
from kvexporter.sources.journal_position import SKIPS
from kvexporter.sources.journal_selection import JournalSelection, MatchGroup, narrowed
from kvexporter.sources.split_lines import SplitLines

MOST_BEFORE = 5_000
"""Entries read of a run's beginning."""

_NEVER = math.inf


class OutOfOrderError(Exception):
    """The entries' times go back: the clock was set, and a part of the journal cannot be told by its times."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a journal by its entries' times, in microseconds since 1970. None: as far as it goes."""

    since: int | None = None
    until: int | None = None
    """The first moment that is not in it."""

    def cut(self, first: int, last: int, count: int) -> list[Span]:
        """Cut it into parts of equal length between the times of its first and its last entry; itself if too short."""
        if last - first < count:
            return [self]
        edges = [first + (last - first) * number // count for number in range(1, count)]
        return [Span(since, until) for since, until in pairwise((self.since, *edges, self.until))]


@dataclass(slots=True)
class SpanChunk:
    """Entries read in one go."""

    entries: list[JournalEntry] = field(default_factory=list)
    """Those that were wanted, in order."""
    newest: float | None = None
    """When the last entry read was received, of any kind and within the span (unix seconds)."""
    malformed: int = 0
    """Entries without a readable message."""
    gap: bool = False
    """Entries before the next ones, if there are any, cannot be read."""


class SpanReader:
    """An open journal, of which parts can be read. A context manager."""

    def __init__(
        self, selection: JournalSelection, opener: Callable[[JournalSelection], LowLevelReader] = open_journal
    ) -> None:
        """JournalUnavailableError when it cannot be opened."""
        self.edges: tuple[str | None, str | None] = (None, None)
        """Of the part read last: cursors of the first entry of its beginning or later, and of its end or later.

        They tell whether two parts fit together: the one's end is the other's beginning.
        """
        self._selection = selection
        self._reader = opener(selection)

    def __enter__(self) -> SpanReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the journal."""
        self._reader.close()

    @property
    def has_split_lines(self) -> bool:
        """Some line in these files was split, whoever's: then what an entry is can depend on the one before."""
        return bool(self._chunks(lambda messages: [None for _ in messages]).split_flags())

    @property
    def size(self) -> int:
        """Bytes of the journal's files, whoever's entries they have."""
        try:
            return self._reader.get_usage()
        except DAMAGED:
            return 0

    def bounds(self, span: Span) -> tuple[int, int] | None:
        """Times of the span's first and last entry in the journal's order; None if there is none in it.

        The last one's is not later where the clock was set back, or the journal is damaged at an end.
        """
        reader = self._reader
        try:
            self._seek(span.since)
            if not reader._next():
                return None
            first = reader._get_realtime()
            if span.until is not None and first >= span.until:
                return None
            if span.until is None:
                reader.seek_tail()
            else:
                reader.seek_realtime(span.until)
            return first, reader._get_realtime() if reader._previous() else first
        except DAMAGED:
            return 0, 0

    def read(self, span: Span, wanted: Wanted) -> Iterator[SpanChunk]:
        """Read a span's entries in the journal's order."""
        chunks = self._chunks(wanted)
        if flags := chunks.split_flags():
            chunks.split = SplitLines(flags)
        self._seek(span.since)
        return self._read(span, chunks)

    def read_part(self, span: Span, wanted: Wanted) -> Iterator[SpanChunk]:
        """The same for a part of a span; `edges` then tells where it began and ended.

        OutOfOrderError where the clock is seen to have been set back.
        """
        chunks = self._chunks(wanted)
        self._seek(span.since)
        chunks.on_unread = self._reader._next()
        self.edges = (self._reader._get_cursor() if chunks.on_unread else None, None)
        last, seen = 0.0, 0.0
        for chunk in self._read(span, chunks):
            last = _rising(chunk.entries, last)
            if chunk.newest is not None and chunk.newest < seen:
                raise OutOfOrderError
            seen = chunk.newest or seen
            yield chunk
        if span.until is not None:
            self.edges = (self.edges[0], self._first_beyond(span.until))

    def _read(self, span: Span, chunks: ChunkReader) -> Iterator[SpanChunk]:
        until = _NEVER if span.until is None else span.until / 1e6
        seen, ended = 0.0 if span.since is None else span.since / 1e6, False
        while not ended:
            chunk = chunks.read(CHUNK_ENTRIES)
            newest, entries, ended = chunk.newest, chunk.entries, chunk.ended
            if newest is not None:
                seen = newest
                if newest >= until:
                    entries = [entry for entry in entries if entry.at < until]
                    newest, ended = entries[-1].at if entries else None, True
            gap = chunk.error is not None
            if gap and not ended:
                ended = not self._skip(seen, chunks)
            yield SpanChunk(entries, newest, chunk.malformed, gap)

    def _first_beyond(self, until: int) -> str | None:
        """Cursor of the first entry of `until` or later, from where reading has stopped; None if there is none."""
        reader = self._reader
        cursor = None
        try:
            while reader._get_realtime() >= until:
                cursor = reader._get_cursor()
                if not reader._previous():
                    break
        except DAMAGED:
            return None
        return cursor

    def run_before(self, moment: int, wanted: Wanted) -> list[JournalEntry]:
        """Wanted entries from the beginning of the run that was under way at `moment` (microseconds), and before it.

        At most some thousand. None where no run is told, as for containers.
        """
        self._seek(moment)
        try:
            invocation = self._reader._get("_SYSTEMD_INVOCATION_ID").decode("ascii") if self._reader._next() else None
        except (KeyError, UnicodeDecodeError, *DAMAGED):
            invocation = None
        if invocation is None:
            return []
        groups: tuple[MatchGroup, ...] = narrowed(
            self._selection.groups or ((),), ("_SYSTEMD_INVOCATION_ID", invocation)
        )
        if not groups:
            return []
        reader = open_journal(self._selection, groups)
        try:
            reader.seek_head()
            chunks = ChunkReader(reader, self._selection.about, wanted, writers_from=lambda: _NEVER)
            entries = chunks.read(MOST_BEFORE).entries
        except DAMAGED:
            return []
        finally:
            reader.close()
        return [entry for entry in entries if entry.at < moment / 1e6]

    def _chunks(self, wanted: Wanted) -> ChunkReader:
        # Who wrote a line is not asked: that costs half of what an entry does.
        return ChunkReader(self._reader, self._selection.about, wanted, writers_from=lambda: _NEVER)

    def _seek(self, since: int | None) -> None:
        if since is None:
            self._reader.seek_head()
        else:
            self._reader.seek_realtime(since)

    def _skip(self, after: float, chunks: ChunkReader) -> bool:
        """Go on behind a damaged place, at the first later moment that can be read; False if there is none."""
        for seconds in SKIPS:
            try:
                self._reader.seek_realtime(round(after * 1e6) + max(1, round(seconds * 1e6)))
                chunks.on_unread = self._reader._next()
            except DAMAGED:
                continue
            return chunks.on_unread
        return False


def _rising(entries: list[JournalEntry], last: float) -> float:
    for entry in entries:
        if entry.at < last:
            raise OutOfOrderError
        last = entry.at
    return last
