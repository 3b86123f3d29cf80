"""Entries of a log as bytes, for the way from one process of this program to another."""

from __future__ import annotations

from typing import Protocol

import msgspec

from kvexporter.facts import JournalEntry

_encode = msgspec.msgpack.Encoder().encode
_REFUSED = (OverflowError, UnicodeEncodeError, TypeError, ValueError)


class Entries(Protocol):
    """What tells of some entries."""

    entries: list[JournalEntry]
    malformed: int
    """Entries that are left out as nothing can be made of them."""


def pack(whole: object, told: Entries) -> bytes:
    """Give the bytes of `whole`, in which `told` is.

    An entry that has no bytes is counted as malformed and left out: if it ended the process, the next one would read it
    too, and end as well.
    """
    try:
        return _encode(whole)
    except _REFUSED:
        kept = [entry for entry in told.entries if _packs(entry)]
        told.malformed += len(told.entries) - len(kept)
        told.entries = kept
        return _encode(whole)


def _packs(entry: JournalEntry) -> bool:
    try:
        _encode(entry)
    except _REFUSED:
        return False
    return True
