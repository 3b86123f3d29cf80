"""What the reading process tells of a journal: a batch of entries and how reading goes, as bytes and back.

A batch is taken as a whole or not at all: `position` is that of its last entry.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from kvexporter import packing
from kvexporter.facts import JournalEntry


class Batch(Struct, array_like=True):
    """What one slice of reading gave. Numbers count entries, times are unix seconds."""

    entries: list[JournalEntry] = field(default_factory=list)
    """Those that say something, without their text: what a message says is in `reading`."""
    ignored: int = 0
    malformed: int = 0
    newest: float | None = None
    """Time of the last entry read, of any kind."""
    position: str | None = None
    """What to go on from next time; None before the first entry."""
    complete_at: float | None = None
    """All entries stored before this moment have been read; None: there are more."""
    duration: float = 0.0
    """Seconds that reading took."""
    gap: bool = False
    """Entries may have been lost."""
    failure: str | None = None
    """Why reading cannot go on now."""


def pack(batch: Batch) -> bytes:
    """Give the bytes of a batch. A file's name in a failure need not be UTF-8: what is not is shown by its numbers."""
    if batch.failure is not None:
        batch.failure = batch.failure.encode("utf-8", "backslashreplace").decode()
    return packing.pack(batch, batch)


unpack = msgspec.msgpack.Decoder(Batch).decode
"""The batch of such bytes, which this very program has packed."""
