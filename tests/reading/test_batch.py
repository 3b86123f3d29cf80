"""What the reading process tells arrives as it was, whatever was read."""

from __future__ import annotations

from pathlib import Path

import pytest

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
from kvexporter.llama import events as ev
from kvexporter.llama.log import parse_line
from kvexporter.reading.batch import Batch, pack, unpack
from kvexporter.reading.frames import Frames, frame
from tests.support.paths import RECORDINGS

LOGS = sorted(RECORDINGS.glob("**/server.log"))


def sent(batch: Batch) -> Batch:
    (message,) = Frames().feed(frame(("batch", 1, pack(batch), False)))
    return unpack(message[2])


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.parent.name)
def test_every_line_of_a_recording_arrives_as_it_was_read(log: Path) -> None:
    read = [parsed for line in log.read_bytes().splitlines() if (parsed := parse_line(line)) is not None]
    entries = [
        # A backlog's lines come without their writers, new ones with.
        JournalEntry(float(n), b"", 4242 if n % 2 else None, "i" * 32 if n % 2 else None, reading=line)
        for n, line in enumerate(read)
    ]
    assert read
    assert sent(Batch(entries)).entries == entries


@pytest.mark.parametrize(
    "event",
    [
        UnitStarted(),
        UnitExited("killed", "KILL"),
        UnitFailed("oom-kill"),
        UnitStopped(),
        UnitStopped(restarting=True),
        UnitRestartScheduled(None),
        UnitRestartScheduled(24),
        UnitOutOfMemory(),
        LinesSuppressed(967),
        UnitStopping(),
        UnitStarting(),
        UnitNotStarted(),
    ],
    ids=repr,
)
def test_every_word_of_systemd_arrives_as_it_was_read(event: UnitEvent) -> None:
    (entry,) = sent(Batch([JournalEntry(1.5, b"Started", 1, None, event)])).entries
    assert (entry.at, entry.unit_event, entry.reading) == (1.5, event, None)


def test_a_piece_of_a_split_line_says_only_whether_it_names_the_error() -> None:
    pieces = [
        JournalEntry(1.0, b"", 7, None, None, True, ev.LogLine(None, mentions_context_error=True)),
        JournalEntry(1.0, b"", None, None, None, True, ev.LogLine(ev.AllSlotsIdle())),
    ]
    assert sent(Batch(pieces)).entries == pieces


def test_an_entry_that_cannot_be_sent_is_malformed_and_the_others_arrive() -> None:
    huge = JournalEntry(1.0, reading=ev.LogLine(ev.BatchRetried(2**64, 1)))
    good = JournalEntry(2.0, reading=ev.LogLine(ev.AllSlotsIdle()))
    batch = sent(Batch([huge, good, JournalEntry(3.0, unit_event=LinesSuppressed(2**70))], malformed=1))
    assert (batch.entries, batch.malformed) == ([good], 3)


def test_a_failure_that_names_a_file_that_is_not_utf8_arrives() -> None:
    assert sent(Batch(failure="no such file: '/x/\udcff.log'")).failure == "no such file: '/x/\\udcff.log'"


def test_how_reading_goes_arrives_too() -> None:
    batch = Batch([], 3, 1, 2.5, "s=1;i=2", 9.0, 0.004, True, "no permission")
    assert sent(batch) == batch
