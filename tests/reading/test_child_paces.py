"""How often the reading process tries a journal, and when it says what."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvexporter.llama.log import parse_lines
from kvexporter.reading import child as child_module
from kvexporter.reading.batch import unpack
from kvexporter.reading.child import UNANNOUNCED_SECONDS, ReadingProcess
from kvexporter.reading.frames import Frames, frame
from kvexporter.reading.whereabouts import Whereabouts
from kvexporter.sources.journal import JournalReader
from kvexporter.sources.journal_chunk import CHUNK_ENTRIES
from kvexporter.sources.journal_opened import OpenedJournal
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.log_selection import Selection, pack_selection
from tests.support.journal_entries import entry
from tests.support.journal_files import journal_from_export

LINE = "srv  update_slots: all slots are idle"


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def whereabouts() -> Iterator[Whereabouts]:
    with Whereabouts.shared() as shared:
        yield shared


def opened(sockets: tuple[socket.socket, socket.socket], at: Whereabouts, selection: Selection) -> ReadingProcess:
    """A reading process that was told to read the selection every 30 s, and has read what there is."""
    ours, theirs = sockets
    ours.sendall(frame(("open", 1, pack_selection(selection), None, "head", 1, 0.0)) + frame(("pace", 30.0)))
    process = ReadingProcess(theirs, at)
    process._turn()
    while process._unread:
        process._turn()
    return process


def in_folder(folder: Path) -> JournalSelection:
    return JournalSelection(unit="llama-server.service", directory=str(folder))


@pytest.mark.parametrize(("announced", "longest"), [(True, 30.0), (False, UNANNOUNCED_SECONDS)])
def test_a_journal_on_a_networks_disk_is_tried_more_often_than_an_idle_daemon_asks_for(
    announced: bool,
    longest: float,
    sockets: tuple[socket.socket, socket.socket],
    whereabouts: Whereabouts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal_from_export(entry(LINE, 1), tmp_path)
    monkeypatch.setattr(OpenedJournal, "announces", lambda self: announced)
    process = opened(sockets, whereabouts, in_folder(tmp_path))
    assert process._longest() == longest
    process._pace = 0.5
    assert process._longest() == 0.5


def test_a_local_folder_announces_all_changes(tmp_path: Path) -> None:
    journal_from_export(entry(LINE, 1), tmp_path)
    reader = JournalReader(in_folder(tmp_path), parse_lines, own_pid=None)
    reader.open()
    assert reader.announces() is True
    reader.close()


def test_that_all_has_been_read_is_told_at_once_where_the_last_slice_ended_with_the_last_entry(
    tmp_path: Path,
    sockets: tuple[socket.socket, socket.socket],
    whereabouts: Whereabouts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_module, "SLICE_SECONDS", 0.0)
    journal_from_export(b"".join(entry(LINE, float(second)) for second in range(CHUNK_ENTRIES)), tmp_path)
    opened(sockets, whereabouts, in_folder(tmp_path))
    told = [unpack(message[2]) for message in Frames().feed(sockets[0].recv(1 << 20)) if message[0] == "batch"]
    assert sum(len(batch.entries) for batch in told) == CHUNK_ENTRIES
    assert [batch.complete_at is not None for batch in told] == [False, True]
