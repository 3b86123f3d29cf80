"""Wanted entries as plain bytes and back, for the way from one process to another of this very program."""

from __future__ import annotations

import dataclasses
import marshal
from typing import Any, get_args

from msgspec.structs import astuple

from kvexporter import facts
from kvexporter.diagnosing.sieve import Asked
from kvexporter.facts import JournalEntry
from kvexporter.llama import events as ev
from kvexporter.llama.events import LogLine

_EVENTS: tuple[type, ...] = get_args(ev.Event)
_NUMBERS = {kind: number for number, kind in enumerate(_EVENTS)}
_UNIT_EVENTS: tuple[type, ...] = get_args(facts.UnitEvent)
_NO_EVENT = -1

_LINE, _PIECE, _ASKED, _UNIT = range(4)
_Values = tuple[float, int, int, tuple[Any, ...], bool, int | None]


def pack(entries: list[JournalEntry], *rest: float | bool | str | None) -> bytes:
    """Give entries, without their text, and some plain values."""
    return marshal.dumps(([_values(entry) for entry in entries], rest))


def unpack(parcel: bytes) -> tuple[list[JournalEntry], tuple[Any, ...]]:
    """The entries and the values of a parcel that this program has packed."""
    entries, rest = marshal.loads(parcel)  # noqa: S302  (our own process wrote it)
    return [_entry(values) for values in entries], rest


def _values(entry: JournalEntry) -> _Values:
    reading = entry.reading
    if type(reading) is LogLine:
        form, event = _PIECE if entry.continued else _LINE, reading.event
        if event is None:
            return entry.at, form, _NO_EVENT, (), reading.mentions_context_error, reading.child_port
        return entry.at, form, _NUMBERS[type(event)], astuple(event), reading.mentions_context_error, reading.child_port
    if type(reading) is Asked:
        return entry.at, _ASKED, 0, (reading.address, reading.failed), False, reading.child_port
    told = entry.unit_event
    if told is None:
        return entry.at, _LINE, _NO_EVENT, (), False, None
    fields = tuple(getattr(told, f.name) for f in dataclasses.fields(told))
    return entry.at, _UNIT, _UNIT_EVENTS.index(type(told)), fields, False, None


def _entry(values: _Values) -> JournalEntry:
    at, form, number, fields, mentions, port = values
    if form == _UNIT:
        return JournalEntry(at, b"", unit_event=_UNIT_EVENTS[number](*fields))
    if form == _ASKED:
        address, failed = fields
        return JournalEntry(at, b"", reading=Asked(address, failed, port))
    reading = _line(number, fields, mentions, port)
    return JournalEntry(at, b"", None, None, None, form == _PIECE, reading)


def _line(number: int, fields: tuple[Any, ...], mentions: bool, port: int | None) -> LogLine:
    return LogLine(None if number == _NO_EVENT else _EVENTS[number](*fields), mentions, port)
