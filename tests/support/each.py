"""Looks at the messages of a reader one by one, for tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kvexporter.facts import Reading
from kvexporter.sources.journal_chunk import Wanted


def each(wanted: Callable[[bytes], Reading | bool | None]) -> Wanted:
    """What a reader is to keep, by one message at a time."""
    return partial(map, wanted)
