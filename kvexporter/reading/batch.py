"""What the reading process tells of a journal: a batch of entries and how reading goes, as plain values and back.

A batch is taken as a whole or not at all: `position` is that of its last entry.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, get_args

from msgspec.structs import astuple

from kvexporter import facts
from kvexporter.facts import JournalEntry
from kvexporter.llama import events as ev
from kvexporter.llama.events import LogLine
from kvexporter.reading.frames import Message

_EVENTS: tuple[type, ...] = get_args(ev.Event)
_EVENT_NUMBERS = {kind: number for number, kind in enumerate(_EVENTS)}
_UNIT_EVENTS: tuple[type, ...] = get_args(facts.UnitEvent)
_NO_EVENT = -1


@dataclass(slots=True)
class Batch:
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


def pack(batch: Batch) -> Message:
    """Give a batch as plain values."""
    return (
        [_pack_entry(entry) for entry in batch.entries],
        batch.ignored,
        batch.malformed,
        batch.newest,
        batch.position,
        batch.complete_at,
        batch.duration,
        batch.gap,
        batch.failure,
    )


def unpack(values: Any) -> Batch:
    """The batch of such values, which this very program has packed."""
    entries, *rest = values
    return Batch([_unpack_entry(entry) for entry in entries], *rest)


def _pack_entry(entry: JournalEntry) -> tuple[object, ...]:
    told = entry.unit_event
    if told is not None:
        fields = tuple(getattr(told, f.name) for f in dataclasses.fields(told))
        return entry.at, _UNIT_EVENTS.index(type(told)), fields
    reading = entry.reading
    if type(reading) is not LogLine:
        reading = LogLine(None)
    event = reading.event
    number, fields = (_NO_EVENT, ()) if event is None else (_EVENT_NUMBERS[type(event)], astuple(event))
    if entry.pid is None and not entry.continued:  # a backlog's
        return entry.at, number, fields, reading.mentions_context_error, reading.child_port
    return (
        entry.at,
        number,
        fields,
        reading.mentions_context_error,
        reading.child_port,
        entry.pid,
        entry.invocation,
        entry.continued,
    )


def _unpack_entry(values: Any) -> JournalEntry:
    if len(values) == 3:
        at, number, fields = values
        return JournalEntry(at, b"", unit_event=_UNIT_EVENTS[number](*fields))
    at, number, fields, mentions, port, *writer = values
    reading = LogLine(None if number == _NO_EVENT else _EVENTS[number](*fields), mentions, port)
    if not writer:
        return JournalEntry(at, b"", None, None, None, False, reading)
    pid, invocation, continued = writer
    return JournalEntry(at, b"", pid, invocation, None, continued, reading)
