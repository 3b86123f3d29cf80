"""What is read of each entry, and what odd and damaged ones do, on journal files made from known entries."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from kvexporter.facts import JournalEntry, LinesSuppressed, UnitExited, UnitRestartScheduled, UnitStarted
from kvexporter.sources.journal_selection import JournalSelection
from tests.support.collected_journal import UNIT, CollectedJournal
from tests.support.journal_entries import START, entry, from_systemd
from tests.support.journal_files import LiveJournalFile, journal_from_export
from tests.support.paths import RECORDINGS

STARTED = b"39f53479d3a045ac8e11786248231fbf"
EXIT = b"98e322203f7a4ed290d09fe03c09fe15"
RESTART = b"5eb03494b6584870a536b337290809b3"


def collected(directory: Path, *, wanted: bytes = b"", selection: JournalSelection | None = None) -> CollectedJournal:
    journal = CollectedJournal(directory, selection=selection, wanted=lambda message: wanted in message)
    journal.open(head=True)
    journal.drain()
    journal.close()
    return journal


def test_a_wanted_entry_comes_with_its_time_process_and_invocation(tmp_path: Path) -> None:
    journal_from_export(entry("hello", 1.5, _SYSTEMD_INVOCATION_ID="a" * 32), tmp_path)
    assert collected(tmp_path).entries == [JournalEntry(START / 1e6 + 1.5, b"hello", 4242, "a" * 32)]


def test_every_change_of_process_and_invocation_is_seen(tmp_path: Path) -> None:
    writers = [("7", "a"), ("7", "a"), ("8", "a"), ("7", "a"), ("7", "b"), ("7", "b")]
    lines = [
        # The same number comes again for another invocation only after a restart of the host: later by more than 1 s.
        entry(f"{n}", n * 0.0001 + (60 if letter == "b" else 0), _PID=pid, _SYSTEMD_INVOCATION_ID=letter * 32)
        for n, (pid, letter) in enumerate(writers)
    ]
    journal_from_export(b"".join(lines), tmp_path)
    seen = [(str(e.pid), (e.invocation or "?")[0]) for e in collected(tmp_path).entries]
    assert seen == writers


def test_unwanted_entries_are_counted_and_not_handed_on(tmp_path: Path) -> None:
    journal_from_export(b"".join(entry(f"line {n}", n) for n in range(10)), tmp_path)
    journal = collected(tmp_path, wanted=b"line 7")
    assert journal.messages == [b"line 7"]
    assert (journal.counts["read"], journal.counts["wanted"]) == (10, 1)


def test_messages_of_any_bytes_arrive_as_they_were_written(tmp_path: Path) -> None:
    texts = [b"\x1b[31mE srv\x1b[0m", b"\xff\xfe\x80 not UTF-8", b"two\nlines", b"", "süß 🦙".encode(), b"x" * 49_000]
    journal_from_export(b"".join(entry(text, n) for n, text in enumerate(texts)), tmp_path)
    assert collected(tmp_path).messages == texts


def test_entries_without_a_message_are_counted_as_malformed_and_passed_over(tmp_path: Path) -> None:
    journal_from_export(entry("a", 0) + entry(None, 1) + entry("b", 2), tmp_path)
    journal = collected(tmp_path)
    assert journal.messages == [b"a", b"b"]
    assert journal.counts["malformed"] == 1


def test_entries_that_lack_their_unit_or_process_harm_nothing(tmp_path: Path) -> None:
    journal_from_export(entry("a", 0) + entry("no unit", 1, _SYSTEMD_UNIT="") + entry("no pid", 2, _PID=""), tmp_path)
    journal = collected(tmp_path)
    assert [(e.message, e.pid) for e in journal.entries] == [(b"a", 4242), (b"no pid", None)]


def test_a_burst_of_equal_timestamps_is_read_once_and_in_order(tmp_path: Path) -> None:
    journal_from_export(b"".join(entry(f"{n}", 3, _N=f"{n}") for n in range(3000)), tmp_path)
    assert collected(tmp_path).messages == [b"%d" % n for n in range(3000)]


def test_systemds_messages_become_events_among_the_lines(tmp_path: Path) -> None:
    lines = [
        from_systemd("Started llama-server.service - LLM.", STARTED, 0, INVOCATION_ID="a" * 32),
        entry("line", 1),
        from_systemd(
            f"{UNIT}: Main process exited, code=exited, status=127/n/a", EXIT, 2, EXIT_CODE="exited", EXIT_STATUS="127"
        ),
        from_systemd(f"{UNIT}: Scheduled restart job, restart counter is at 24.", RESTART, 3, N_RESTARTS="24"),
    ]
    journal_from_export(b"".join(lines), tmp_path)
    journal = collected(tmp_path, wanted=b"line")
    assert journal.events == [UnitStarted(), UnitExited("exited", "127"), UnitRestartScheduled(24)]
    assert [e.pid for e in journal.entries] == [1, 4242, 1, 1]
    assert journal.entries[0].invocation == "a" * 32


def test_a_line_that_reads_like_systemds_is_a_line(tmp_path: Path) -> None:
    journal_from_export(entry("Started llama-server.service.", 0, MESSAGE_ID=STARTED, UNIT=UNIT), tmp_path)
    journal = collected(tmp_path)
    assert journal.events == []
    assert journal.messages == [b"Started llama-server.service."]


@pytest.mark.parametrize("flag", ["line-max", "nul"])
def test_later_pieces_of_a_split_line_are_marked(tmp_path: Path, flag: str) -> None:
    lines = [
        entry("first piece", 0, _STREAM_ID="s1", _LINE_BREAK=flag),
        entry("line of stderr", 1, _STREAM_ID="s2"),
        entry("second piece", 2, _STREAM_ID="s1", _LINE_BREAK=flag),
        entry(None, 3, _STREAM_ID="s2"),
        entry("last piece", 4, _STREAM_ID="s1"),
        entry("line", 5, _STREAM_ID="s1"),
    ]
    journal_from_export(b"".join(lines), tmp_path)
    journal = collected(tmp_path)
    assert [e.message for e in journal.entries if e.continued] == [b"second piece", b"last piece"]
    assert len(journal.messages) == 5
    assert (journal.counts["continued"], journal.counts["read"], journal.counts["malformed"]) == (2, 6, 1)


def test_later_pieces_of_a_containers_line_are_marked(tmp_path: Path) -> None:
    container = {"CONTAINER_ID_FULL": "c" * 64, "CONTAINER_NAME": "llama"}
    lines = [
        entry("first", 0, CONTAINER_PARTIAL_MESSAGE="true", PRIORITY="3", **container),
        entry("other output", 1, **container),
        entry("last", 2, PRIORITY="3", **container),
        entry("line", 3, PRIORITY="3", **container),
    ]
    journal_from_export(b"".join(lines), tmp_path)
    selection = JournalSelection(matches=({"CONTAINER_NAME": "llama"},), directory=str(tmp_path))
    assert [e.message for e in collected(tmp_path, selection=selection).entries if e.continued] == [b"last"]


def test_a_line_split_across_a_restart_of_the_exporter_stays_split(tmp_path: Path) -> None:
    with LiveJournalFile(tmp_path) as live:
        live.write("first piece", _LINE_BREAK="line-max", _STREAM_ID="s1")
        live.wait_for_file()
        before = CollectedJournal(tmp_path)
        before.open(head=True)
        before.follow_until("the first piece", lambda: len(before.entries) == 1)
        before.close()
        live.write("last piece", _STREAM_ID="s1")
        after = CollectedJournal(tmp_path)
        after.open(before.reader.position())
        after.follow_until("the last piece", lambda: len(after.entries) == 1)
        after.close()
    assert [e.continued for e in after.entries] == [True]


def test_a_line_first_split_while_following_is_noticed(tmp_path: Path) -> None:
    with LiveJournalFile(tmp_path) as live:
        live.write("whole", _STREAM_ID="s1")
        live.wait_for_file()
        journal = CollectedJournal(tmp_path)
        journal.open(head=True)
        journal.follow_until("the whole line", lambda: len(journal.entries) == 1)
        live.write("first piece", _LINE_BREAK="nul", _STREAM_ID="s1")
        journal.follow_until("the first piece", lambda: len(journal.entries) == 2)
        live.write("last piece", _STREAM_ID="s1")
        journal.follow_until("the last piece", lambda: len(journal.entries) == 3)
        journal.close()
    assert [e.continued for e in journal.entries] == [False, False, True]


def test_many_chunks_with_one_split_line_are_read_once(tmp_path: Path) -> None:
    """The chunk in which the first split line shows is read again: nothing of it may be handed on twice."""
    lines = [entry(f"{n}", n * 0.001, _STREAM_ID="s") for n in range(5000)]
    lines[3000] = entry("3000", 3.0, _STREAM_ID="s", _LINE_BREAK="nul")
    journal_from_export(b"".join(lines), tmp_path)
    journal = collected(tmp_path)
    assert journal.messages == [b"%d" % n for n in range(5000)]
    assert [e.message for e in journal.entries if e.continued] == [b"3001"]


def test_the_exporters_own_lines_are_never_a_servers(tmp_path: Path) -> None:
    own = str(os.getpid())
    with LiveJournalFile(tmp_path) as live:
        live.write("of an earlier process with that number", pid=int(own), at=START / 1e6)
        live.wait_for_file()
        journal = CollectedJournal(selection=JournalSelection(directory=str(tmp_path)), own_pid=int(own))
        journal.open()
        live.write("own", pid=int(own))
        live.write("server's")
        journal.follow_until("three entries", lambda: journal.counts["read"] == 3)
        journal.close()
    assert journal.messages == [b"of an earlier process with that number", b"server's"]


def test_journalds_notice_of_dropped_lines_counts_them(tmp_path: Path) -> None:
    notice = entry(
        f"Suppressed 2541 messages from {UNIT}",
        0,
        _TRANSPORT="driver",
        _SYSTEMD_UNIT="systemd-journald.service",
        MESSAGE_ID="a596d6fe7bfa4994828e72309e95d61e",
        N_DROPPED="2541",
        OBJECT_SYSTEMD_UNIT=UNIT,
    )
    journal_from_export(notice, tmp_path)
    assert collected(tmp_path).events == [LinesSuppressed(2541)]


@pytest.mark.parametrize("recording", ["b11434/unified_overflow", "agents-b8635", "b5541/api_key"])
def test_a_recording_is_read_line_by_line_as_the_server_wrote_it(tmp_path: Path, recording: str) -> None:
    folder = RECORDINGS / recording
    journal_from_export((folder / "journal.export").read_bytes(), tmp_path)
    exported = (folder / "journal.export").read_bytes().count(b"\n\n")
    journal = collected(tmp_path)
    assert journal.counts["read"] == exported
    written = (folder / "server.log").read_bytes().split(b"\n")
    assert [m.rstrip() for m in journal.messages] == [line.rstrip() for line in written if line.strip()]


# ---- damaged files -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sound")
    return journal_from_export(b"".join(entry(f"line {n} " + "x" * 400, n * 0.01) for n in range(3000)), directory)


def _truncate(data: bytearray) -> None:
    del data[len(data) // 2 :]


def _garbage_header(data: bytearray) -> None:
    data[:256] = random.Random(1).randbytes(256)


def _empty(data: bytearray) -> None:
    data.clear()


def _flipped_bytes(data: bytearray) -> None:
    chance = random.Random(2)
    for _ in range(100):
        data[chance.randrange(len(data) // 4, len(data) * 3 // 4)] ^= 0xFF


def _zeroed_page(data: bytearray) -> None:
    data[len(data) // 2 & ~4095 : (len(data) // 2 & ~4095) + 4096] = bytes(4096)


def _zeroed_stretch(data: bytearray) -> None:
    data[len(data) // 3 : len(data) // 3 + 400_000] = bytes(400_000)


@pytest.mark.parametrize("damage", [_truncate, _garbage_header, _empty, _flipped_bytes, _zeroed_page, _zeroed_stretch])
def test_a_damaged_file_costs_its_own_entries_only(tmp_path: Path, sound: Path, damage: object) -> None:
    data = bytearray(sound.read_bytes())
    assert callable(damage)
    damage(data)
    (tmp_path / "damaged.journal").write_bytes(data)
    journal_from_export(b"".join(entry(f"later {n}", 100 + n) for n in range(20)), tmp_path, "sound.journal")
    journal = collected(tmp_path)
    assert [m for m in journal.messages if m.startswith(b"later")] == [b"later %d" % n for n in range(20)]
    assert len(journal.messages) <= 3020
    assert len(set(journal.messages)) == len(journal.messages)


def test_a_file_replaced_by_a_damaged_one_while_following_does_not_end_it(tmp_path: Path, sound: Path) -> None:
    shutil.copy(sound, tmp_path / "a.journal")
    with LiveJournalFile(tmp_path) as live:
        live.write("live 0")
        live.wait_for_file()
        journal = CollectedJournal(tmp_path)
        journal.open(head=True)
        journal.follow_until("the live line", lambda: b"live 0" in journal.messages)
        # Another file under its name. Overwritten in place, which nothing does, a mapped file would end the process.
        (tmp_path / "garbage").write_bytes(b"garbage" * 1000)
        (tmp_path / "garbage").rename(tmp_path / "a.journal")
        live.write("live 1")
        journal.follow_until("the next live line", lambda: b"live 1" in journal.messages)
        journal.close()
