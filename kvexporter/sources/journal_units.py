"""Which units, users' units and containers of a journal have lines of interest: found by looking at a few of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, Protocol, cast

from kvexporter.sources.journal_chunk import DAMAGED
from kvexporter.sources.journal_library import LowLevelReader, field, open_journal
from kvexporter.sources.journal_selection import JournalSelection

LOOKED_AT = 200
"""Lines from each end: a server's log begins with its start, and ends with what it does."""
MOST_NAMES = 2_000
"""Units, and containers, that are looked at."""

_KINDS: tuple[tuple[Literal["unit", "user_unit", "container"], str], ...] = (
    ("unit", "_SYSTEMD_UNIT"),
    ("user_unit", "_SYSTEMD_USER_UNIT"),
    ("container", "CONTAINER_NAME"),
)
_INSIDE = ("_SYSTEMD_USER_UNIT", "CONTAINER_NAME")
"""A user manager's unit has its units' lines too, and a container engine's those of its containers."""


class _Rematchable(LowLevelReader, Protocol):
    """A reader whose matches can be replaced: opening a journal anew for each unit would take long."""

    def flush_matches(self) -> None: ...


def find_units(says: Callable[[bytes], bool], directory: str | None = None) -> list[tuple[str, JournalSelection]]:
    """Give name and selection of all that wrote a line of which `says` is true, sorted by name.

    JournalUnavailableError when the journal cannot be opened.
    """
    everything = JournalSelection(matches=({"_TRANSPORT": "stdout"},), directory=directory)
    reader = cast("_Rematchable", open_journal(everything, ()))
    found: dict[str, JournalSelection] = {}
    try:
        for kind, name in _KINDS:
            for value in _values(reader, name):
                if _writes(reader, name, value, says):
                    shown, selection = _selection(kind, value, directory)
                    found.setdefault(shown, selection)
    finally:
        reader.close()
    return sorted(found.items())


def _values(reader: LowLevelReader, name: str) -> list[str]:
    try:
        values = sorted(reader.query_unique(name))
    except DAMAGED:
        return []
    texts = [value.decode("utf-8", "replace") for value in values[:MOST_NAMES]]
    return [text for text in texts if text and "/" not in text and "\0" not in text]


def _writes(reader: _Rematchable, name: str, value: str, says: Callable[[bytes], bool]) -> bool:
    inside = _INSIDE if name == "_SYSTEMD_UNIT" else ()
    try:
        reader.flush_matches()
        reader.add_match(f"{name}={value}")
        for message in _samples(reader):
            if says(message) and all(field(reader, other) is None for other in inside):
                return True
    except DAMAGED:
        pass
    return False


def _samples(reader: LowLevelReader) -> Iterator[bytes]:
    reader.seek_head()
    yield from _some(reader, reader._next)
    reader.seek_tail()
    yield from _some(reader, reader._previous)


def _some(reader: LowLevelReader, step: Callable[[], bool]) -> Iterator[bytes]:
    for _ in range(LOOKED_AT):
        if not step():
            return
        message = field(reader, "MESSAGE")
        if message is not None:
            yield message


def _selection(
    kind: Literal["unit", "user_unit", "container"], value: str, directory: str | None
) -> tuple[str, JournalSelection]:
    if kind == "unit":
        return value, JournalSelection(unit=value, directory=directory)
    if kind == "user_unit":
        return value, JournalSelection(user_unit=value, directory=directory)
    return value, JournalSelection(matches=({"CONTAINER_NAME": value},), directory=directory)
