"""What one process finds in its part of a journal comes to another one as it was found."""

from __future__ import annotations

import pytest

from kvexporter.diagnosing.sieve import Sieve
from kvexporter.diagnosing.spans import Part, pack, unpack
from kvexporter.facts import (
    JournalEntry,
    LinesSuppressed,
    UnitEvent,
    UnitExited,
    UnitFailed,
    UnitNotStarted,
    UnitOutOfMemory,
    UnitRestartScheduled,
    UnitStarted,
    UnitStarting,
    UnitStopped,
    UnitStopping,
)
from kvexporter.llama.access_log import Asked
from kvexporter.llama.events import LogLine
from tests.support.diagnosing import EXPECTED, recorded


def came(entries: list[JournalEntry]) -> list[JournalEntry]:
    part, _, _ = unpack(pack(Part(entries), None, None))
    return part.entries


@pytest.mark.parametrize("name", EXPECTED)
def test_what_lines_say_comes_through(name: str) -> None:
    sieve = Sieve(thorough=True)
    entries = [
        JournalEntry(1e9 + number / 1e6, b"", reading=reading)
        for number, line in enumerate(recorded(name))
        if (reading := sieve(line)) is not None
    ]
    part = Part(entries, 1.5, 3, gap=True, sifted=True)
    assert unpack(pack(part, "begins", None)) == (part, "begins", None)


@pytest.mark.parametrize(
    "event",
    [
        UnitStarted(), UnitStopped(), UnitExited("exited", "127"), UnitFailed("oom-kill"), UnitRestartScheduled(3),
        UnitRestartScheduled(None), UnitOutOfMemory(), LinesSuppressed(40), UnitStopping(), UnitNotStarted(),
        UnitStarting(),
    ],
)  # fmt: skip
def test_what_systemd_says_comes_through(event: UnitEvent) -> None:
    entries = [JournalEntry(5.0, b"", unit_event=event)]
    assert came(entries) == entries


@pytest.mark.parametrize(
    "entry",
    [
        JournalEntry(5.0, b"", reading=Asked("::1", True, 8081)),
        JournalEntry(5.0, b"", reading=LogLine(None, mentions_context_error=True)),
        JournalEntry(5.0, b"", continued=True, reading=LogLine(None, mentions_context_error=True)),
    ],
)
def test_requests_and_pieces_of_lines_come_through(entry: JournalEntry) -> None:
    assert came([entry]) == [entry]
