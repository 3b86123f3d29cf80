"""A journal that is open: the place in it up to which it has been read, and the next chunk from there.

It says what stands in the way (damage, entries that come again), and leaves to `journal` what to do about it.
"""

from __future__ import annotations

from kvexporter.sources.journal_chunk import DAMAGED, Chunk, ChunkReader
from kvexporter.sources.journal_library import LowLevelReader
from kvexporter.sources.journal_mark import Progress, place
from kvexporter.sources.journal_position import seek_after, seek_beyond
from kvexporter.sources.split_lines import SplitLines

_INVALIDATE = 2  # SD_JOURNAL_INVALIDATE: files have come or gone


class MovingError(Exception):
    """The journal is being moved: what was read before comes again."""


class IterationError(Exception):
    """libsystemd cannot go to the next entry, or not say which one it is."""


class OpenedJournal:
    """Reads an open journal behind `progress`, which it carries on, and which outlives it."""

    def __init__(self, reader: LowLevelReader, chunks: ChunkReader, progress: Progress) -> None:
        self._reader = reader
        self._chunks = chunks
        self._progress = progress

    def close(self) -> None:
        """Close the journal."""
        self._reader.close()

    def fileno(self) -> int:
        """Descriptor that becomes readable when the journal changes."""
        return self._reader.fileno()

    def announces(self) -> bool:
        """Whether it always does: on a network's disk what other hosts write goes unnoticed. Never raises."""
        try:
            return self._reader.reliable_fd()
        except DAMAGED:
            return False

    def process(self) -> bool:
        """Have libsystemd look at the files, and make the descriptor unreadable again. True when some came or went.

        OSError or ValueError when it cannot.
        """
        return self._reader.process() == _INVALIDATE

    # ---- its place -------------------------------------------------------------------------------------------------

    def go_back(self) -> bool:
        """Position after the last entry read, or where reading began if none was; False when that entry is gone.

        OSError or ValueError when libsystemd cannot.
        """
        reader, chunks, progress = self._reader, self._chunks, self._progress
        chunks.on_unread = False
        progress.last = None
        if progress.mark is not None:
            landing = seek_after(reader, progress.mark)
            chunks.on_unread = landing.on_unread
            if landing.kind == "exact":
                progress.last = place(progress.mark.cursor)
                progress.resume()
                if chunks.split is not None:
                    chunks.split.continued(chunks.field)  # its line may be the one that goes on
            elif landing.kind == "moved":
                progress.last = place(reader._get_cursor())
                progress.repeat()
            else:
                progress.leap()
            return landing.kind != "gone"
        if progress.begin is None:
            reader.seek_head()
            return True
        reader.seek_cursor(progress.begin)
        chunks.on_unread = reader._next()
        return chunks.on_unread and reader.test_cursor(progress.begin)

    def go_beyond(self) -> None:
        """Position beyond what is damaged after the last entry read, if any was. OSError when nothing can be read."""
        if self._progress.mark is not None:
            self._chunks.on_unread = seek_beyond(self._reader, self._progress.mark)
            self._progress.leap()

    # ---- its entries -----------------------------------------------------------------------------------------------

    def read(self, limit: int, *, twice: bool, copies_stay: bool) -> Chunk:
        """Read a chunk of entries; what was read before is taken out.

        `twice`: entries may be in two files, so `limit` must be 1. Copies are passed over if they stay, else
        MovingError. IterationError when nothing can be read; what was read before such a place comes as a chunk.
        """
        chunks = self._chunks
        chunk = chunks.read(limit)
        if chunks.split is None and chunk.entries and (flags := chunks.split_flags()):
            # Some line was split, maybe one of ours: read the chunk again, now looking at every entry's flags.
            chunks.split = SplitLines(flags)
            try:
                self.go_back()
            except DAMAGED as error:
                raise IterationError(str(error)) from error
            chunk = chunks.read(limit)
        if chunk.read:
            try:
                cursor = self._reader._get_cursor()
            except DAMAGED as error:
                # Handed on without a place they would be handed on again.
                raise IterationError(f"the position cannot be told: {error}") from error
            if twice and self._comes_again(cursor):
                if not copies_stay:
                    raise MovingError
                return Chunk()
            self._progress.advance(cursor, chunk.entries, chunk.newest)
        return chunk

    def _comes_again(self, cursor: str) -> bool:
        """Whether the entry was read where it was before."""
        try:
            here = place(cursor)
        except ValueError:
            return False
        last = self._progress.last
        if last is not None and here.comes_again(last):
            return True
        self._progress.last = here
        return False
