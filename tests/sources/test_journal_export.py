from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest

from kvexporter.facts import JournalEntry, LinesSuppressed, UnitRestartScheduled
from kvexporter.sources.journal_export import MAX_VALUE, ExportReader, read_export
from tests.support.collected_journal import UNIT
from tests.support.journal_entries import START, entry, from_systemd
from tests.support.paths import RECORDINGS

RESTART = b"5eb03494b6584870a536b337290809b3"


def read(data: bytes) -> tuple[list[JournalEntry], ExportReader]:
    reader = ExportReader(io.BytesIO(data))
    return list(reader), reader


def test_text_and_binary_values_are_read() -> None:
    texts = [b"plain", b"a=b", b"two\nlines", b"\xff\x00\xfe", b""]
    entries, _ = read(b"".join(entry(text, n) for n, text in enumerate(texts)))
    assert [e.message for e in entries] == texts
    assert [e.at for e in entries] == [START / 1e6 + n for n in range(5)]
    assert {e.pid for e in entries} == {4242}


def test_systemds_and_journalds_messages_become_events_whatever_the_unit() -> None:
    restart = from_systemd("restart", RESTART, 0, N_RESTARTS="3", INVOCATION_ID="a" * 32)
    notice = entry(
        "Suppressed",
        1,
        _TRANSPORT="driver",
        MESSAGE_ID="a596d6fe7bfa4994828e72309e95d61e",
        N_DROPPED="7",
        OBJECT_SYSTEMD_UNIT=UNIT,
    )
    entries, _ = read(restart + notice)
    assert [e.unit_event for e in entries] == [UnitRestartScheduled(3), LinesSuppressed(7)]
    assert entries[0].invocation == "a" * 32


def test_later_pieces_of_split_lines_are_marked() -> None:
    entries, _ = read(entry("first", 0, _STREAM_ID="s", _LINE_BREAK="line-max") + entry("last", 1, _STREAM_ID="s"))
    assert [e.continued for e in entries] == [False, True]


@pytest.mark.parametrize(
    "bad",
    [
        entry(None, 0),
        entry("no time", 0, __REALTIME_TIMESTAMP=""),
        entry("bad time", 0, __REALTIME_TIMESTAMP="yesterday"),
        entry("huge time", 0, __REALTIME_TIMESTAMP="9" * 40),
        entry(b"\n" + b"x" * (MAX_VALUE + 1), 0),
        entry(b"x" * (MAX_VALUE + 1), 0),
        b"MESSAGE\n" + struct.pack("<Q", 3) + b"abcNOT A NEWLINE\n\n",
    ],
    ids=["no message", "no time", "bad time", "huge time", "huge binary", "huge text", "no newline"],
)
def test_an_entry_that_cannot_be_read_is_counted_and_the_next_one_is_read(bad: bytes) -> None:
    entries, reader = read(bad + entry("good", 1))
    assert [e.message for e in entries] == [b"good"]
    assert (reader.malformed, reader.read) == (1, 2)


@pytest.mark.parametrize("size", [1 << 62, MAX_VALUE, 20])
def test_a_length_beyond_the_end_of_the_stream_ends_it_without_being_believed(size: int) -> None:
    entries, reader = read(entry("good", 0) + b"MESSAGE\n" + struct.pack("<Q", size) + b"short")
    assert [e.message for e in entries] == [b"good"]
    assert reader.malformed == 1


def test_a_long_value_that_nobody_needs_harms_nothing() -> None:
    coredump = b"\n" + b"x" * (MAX_VALUE * 2)
    entries, reader = read(entry("good", 0, COREDUMP=coredump, OTHER=b"y" * (MAX_VALUE * 2)))
    assert [e.message for e in entries] == [b"good"]
    assert reader.malformed == 0


@pytest.mark.parametrize("cut", range(1, 200, 13))
def test_a_stream_cut_off_anywhere_gives_what_came_before(cut: int) -> None:
    whole = entry("first", 0) + entry(b"sec\nond", 1)
    entries, _ = read(whole[:-cut])
    assert entries[0].message == b"first"
    assert len(entries) <= 2


def test_nothing_and_rubbish_give_no_entries() -> None:
    assert list(read_export(io.BytesIO(b""))) == []
    assert list(read_export(io.BytesIO(b"\n\n\n"))) == []
    assert list(read_export(io.BytesIO(bytes(range(256)) * 40))) == []


@pytest.mark.parametrize("recording", ["b11434/unified_overflow", "agents-b8635", "b5541/api_key"])
def test_a_recordings_entries_are_its_servers_lines(recording: str) -> None:
    folder: Path = RECORDINGS / recording
    with (folder / "journal.export").open("rb") as stream:
        reader = ExportReader(stream)
        messages = [e.message.rstrip() for e in reader]
    written = (folder / "server.log").read_bytes().split(b"\n")
    assert messages == [line.rstrip() for line in written if line.strip()]
    assert reader.malformed == 0
