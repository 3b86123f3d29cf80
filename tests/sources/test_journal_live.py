"""Following a real journald: rotation, vacuum, crashes, limits, namespaces, permissions."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvexporter.facts import LinesSuppressed
from kvexporter.sources.journal_dropped import dropped_lines
from kvexporter.sources.journal_health import journal_health
from kvexporter.sources.journal_selection import JournalSelection
from tests.support.collected_journal import CollectedJournal, deleted_files_held
from tests.support.livejournald import LiveJournald
from tests.support.paths import ROOT, wait_for


@pytest.fixture
def journald() -> Iterator[LiveJournald]:
    with LiveJournald() as running:
        yield running


def written(stream: socket.socket, *lines: str) -> None:
    stream.sendall("".join(line + "\n" for line in lines).encode())


def numbered(stream: socket.socket, count: int, pause: float, every: int = 10) -> threading.Thread:
    """Write numbered lines from a thread of their own."""

    def write() -> None:
        for n in range(0, count, every):
            written(stream, *(f"line {i}" for i in range(n, min(n + every, count))))
            time.sleep(pause)

    writer = threading.Thread(target=write)
    writer.start()
    return writer


def expected(count: int) -> list[bytes]:
    return [b"line %d" % n for n in range(count)]


def test_lines_are_followed_live_with_the_units_and_the_writers_names(journald: LiveJournald) -> None:
    stream = journald.stream()
    written(stream, "before")
    journal = CollectedJournal(journald.directory)
    wait_for("the journal's file", lambda: list(journald.machine_directory.glob("*.journal")))
    journal.open()
    journal.follow_until("the first line", lambda: journal.messages == [b"before"])
    journald.write_from_another_process("other.service", "of another unit")
    written(stream, "live")
    journal.follow_until("the live line", lambda: journal.messages == [b"before", b"live"])
    journal.close()
    assert journal.entries[-1].pid == os.getpid()
    assert abs(journal.entries[-1].at - time.time()) < 60


def test_a_lone_line_is_read_without_waiting_for_its_announcement(journald: LiveJournald) -> None:
    stream = journald.stream()
    written(stream, "first")
    journal = CollectedJournal(journald.directory)
    journal.open()
    journal.follow_until("the first line", lambda: len(journal.messages) == 1)
    written(stream, "second")

    def read() -> bool:
        journal.drain()  # never waits on the descriptor
        return len(journal.messages) == 2

    wait_for("the second line", read, interval=0.005)
    journal.close()


def test_rotation_every_third_of_a_second_loses_and_repeats_nothing(journald: LiveJournald) -> None:
    stream = journald.stream()
    journal = CollectedJournal(journald.directory)
    journal.open()
    writer = numbered(stream, 3000, 0.01)
    next_rotation = 0.0

    def rotate_and_look() -> bool:
        nonlocal next_rotation
        if writer.is_alive() and time.monotonic() > next_rotation:
            journald.rotate()
            next_rotation = time.monotonic() + 0.3
        return len(journal.messages) >= 3000

    journal.follow_until("3,000 lines", rotate_and_look, 60)
    writer.join()
    journal.follow_for(0.5)
    assert journal.messages == expected(3000)
    assert journal.failures == []
    assert deleted_files_held() == []
    journal.close()


def test_vacuum_of_read_files_loses_and_repeats_nothing_and_frees_them(journald: LiveJournald) -> None:
    stream = journald.stream()
    journal = CollectedJournal(journald.directory)
    journal.open()
    writer = numbered(stream, 2000, 0.01)
    rounds = 0
    next_round = time.monotonic() + 0.3

    def vacuum_and_look() -> bool:
        nonlocal rounds, next_round
        if writer.is_alive() and time.monotonic() > next_round:
            journald.journalctl("--rotate")
            journal.drain()
            journald.journalctl("--vacuum-files=2")
            rounds, next_round = rounds + 1, time.monotonic() + 0.3
        return len(journal.messages) >= 2000

    journal.follow_until("2,000 lines", vacuum_and_look, 60)
    writer.join()
    journal.follow_for(0.5)
    assert rounds >= 2
    assert journal.messages == expected(2000)
    assert deleted_files_held() == []
    journal.close()


def test_a_cursor_is_exact_after_rotation_and_says_when_its_entry_was_vacuumed(journald: LiveJournald) -> None:
    stream = journald.stream()
    written(stream, *(f"line {n}" for n in range(100)))
    journal = CollectedJournal(journald.directory)
    journal.open()
    journal.follow_until("100 lines", lambda: len(journal.messages) == 100)
    cursor = journal.reader.position()
    journal.close()
    journald.journalctl("--rotate")
    written(stream, "after")
    again = CollectedJournal(journald.directory)
    assert again.open(cursor).kind == "position"
    again.follow_until("the line after the rotation", lambda: again.messages == [b"after"])
    again.close()
    journald.journalctl("--rotate")
    journald.journalctl("--vacuum-files=1")
    written(stream, "last")
    late = CollectedJournal(journald.directory)
    assert late.open(cursor).kind == "gap"
    late.follow_until("the last line", lambda: late.messages[-1:] == [b"last"])
    late.close()


def test_a_crash_of_journald_does_not_end_following(journald: LiveJournald) -> None:
    stream = journald.stream()
    written(stream, *(f"line {n}" for n in range(200)))
    journal = CollectedJournal(journald.directory)
    journal.open()
    journal.follow_until("200 lines", lambda: len(journal.messages) == 200)
    journald.kill()
    journald.start()
    written(journald.stream(), *(f"line {n}" for n in range(200, 400)))
    journal.follow_until("the lines after the crash", lambda: len(journal.messages) >= 400)
    journal.close()
    assert journal.messages == expected(400)


def test_a_reader_opened_before_journald_writes_its_first_file_sees_it(tmp_path: Path) -> None:
    with LiveJournald() as journald:
        journald.kill()
        shutil.rmtree(journald.machine_directory, ignore_errors=True)
        journal = CollectedJournal(journald.directory)
        assert journal.open().kind == "head"
        assert journal.drain().read == 0
        journald.start()
        written(journald.stream(), "hello")
        journal.follow_until("the first line ever", lambda: journal.messages == [b"hello"])
        journal.close()


def test_a_folder_that_is_deleted_and_made_anew_is_found_again(journald: LiveJournald) -> None:
    stream = journald.stream()
    written(stream, "before")
    journal = CollectedJournal(journald.directory)
    journal.open()
    journal.follow_until("the line before", lambda: journal.messages == [b"before"])
    shutil.rmtree(journald.machine_directory)
    journald.rotate()
    written(stream, "after")
    journal.follow_until("the line in the new folder", lambda: journal.messages == [b"before", b"after"])
    assert deleted_files_held() == []
    journal.close()


def test_a_quiet_reader_of_an_unchanged_folder_is_left_alone(journald: LiveJournald) -> None:
    written(journald.stream(), "line")
    now = [1000.0]
    journal = CollectedJournal(journald.directory)
    journal.reader._clock = lambda: now[0]
    journal.open()
    journal.follow_until("the line", lambda: journal.messages == [b"line"])
    journal.reader.open(journal.reader.position())
    now[0] += 3600
    assert not journal.reader.stale_check()
    journal.close()


def test_a_line_of_60000_bytes_is_read_in_pieces_and_the_later_one_is_marked(journald: LiveJournald) -> None:
    stream = journald.stream()
    written(stream, "a" * 60_000, "next")
    journal = CollectedJournal(journald.directory)
    journal.open()
    journal.follow_until("three entries", lambda: len(journal.messages) == 3)
    journal.close()
    assert [(len(e.message), e.continued) for e in journal.entries] == [(49_152, False), (10_848, True), (4, False)]


def test_what_follows_a_nul_is_marked_as_the_rest_of_its_line(journald: LiveJournald) -> None:
    stream = journald.stream()
    stream.sendall(b"first\0second\nnext\n")
    journal = CollectedJournal(journald.directory)
    journal.open()
    journal.follow_until("three entries", lambda: len(journal.messages) == 3)
    journal.close()
    assert [(e.message, e.continued) for e in journal.entries] == [
        (b"first", False),
        (b"second", True),
        (b"next", False),
    ]


def test_bytes_that_are_not_utf_8_arrive_unchanged(journald: LiveJournald) -> None:
    journald.stream().sendall(b"\x1b[31m\xff\xfe\x80\n")
    journal = CollectedJournal(journald.directory)
    journal.open()
    journal.follow_until("the line", lambda: journal.messages == [b"\x1b[31m\xff\xfe\x80"])
    journal.close()


def test_lines_dropped_by_the_rate_limit_are_told() -> None:
    limit = {"RateLimitIntervalSec": "2s", "RateLimitBurst": "50"}
    with LiveJournald(settings=limit) as journald:
        stream = journald.stream()
        written(stream, *(f"line {n}" for n in range(3000)))
        journal = CollectedJournal(journald.directory)
        journal.open()

        def told() -> bool:
            written(stream, "more")  # the notice comes with the next line that is let through
            return bool(journal.events)

        journal.follow_until("journald's notice", told, 60)
        dropped = dropped_lines(journal.reader.selection)
        of_others = dropped_lines(JournalSelection(unit="other", directory=str(journald.directory)))
        journal.close()
    (notice,) = journal.events
    assert isinstance(notice, LinesSuppressed)
    stored = sum(message.startswith(b"line ") for message in journal.messages)
    assert stored + notice.count >= 3000  # "more" lines were dropped as well
    assert dropped >= notice.count
    assert of_others == 0


def test_an_entry_sent_without_a_message_is_counted_and_passed_over(journald: LiveJournald) -> None:
    journald.send(SYSLOG_IDENTIFIER="llama", NOTHING="here")
    journald.send(SYSLOG_IDENTIFIER="llama", MESSAGE=b"\x00binary\xff")
    selection = JournalSelection(matches=({"SYSLOG_IDENTIFIER": "llama"},), directory=str(journald.directory))
    journal = CollectedJournal(selection=selection)
    journal.open()
    journal.follow_until("both entries", lambda: journal.counts["read"] == 2)
    journal.close()
    assert journal.counts["malformed"] == 1
    assert journal.messages == [b"\x00binary\xff"]


def test_a_journal_namespace_is_followed_and_its_name_is_suggested_where_it_is_missing() -> None:
    with LiveJournald("namespace") as journald:
        written(journald.stream(), "in the namespace")
        selection = JournalSelection(unit="llama-server", namespace=journald.namespace)
        journal = CollectedJournal(selection=selection)
        journal.open()
        journal.follow_until("the line", lambda: journal.messages == [b"in the namespace"])
        journal.close()
        assert journal_health(selection).ok
        default = CollectedJournal(selection=JournalSelection(unit="llama-server"))
        default.open(head=True)
        default.drain()
        default.close()
        assert b"in the namespace" not in default.messages
        health = journal_health(JournalSelection(unit="no-such-unit"))
        assert any(journald.namespace in note and "LogNamespace=" in note for note in health.notes)


def test_without_permission_the_reader_stays_empty_and_the_health_says_what_to_do(journald: LiveJournald) -> None:
    written(journald.stream(), "secret")
    wait_for("the journal's file", lambda: list(journald.machine_directory.glob("*.journal")))
    for folder in (journald.directory, journald.machine_directory):
        folder.chmod(0o755)
    script = f"""
from kvexporter.sources.journal import JournalReader
from kvexporter.sources.journal_health import journal_health
from kvexporter.sources.journal_selection import JournalSelection
selection = JournalSelection(unit="llama-server", directory={str(journald.directory)!r})
reader = JournalReader(selection, lambda messages: [True] * len(messages))
reader.open()
print(reader.drain(1.0, print))
print(*journal_health(selection).problems)
"""
    done = _as_nobody(script)
    assert "read=0" in done
    assert "no permission to read" in done
    assert "SupplementaryGroups=systemd-journal" in done
    journald.machine_directory.chmod(0o700)
    assert "no permission to read" in _as_nobody(script)


def _as_nobody(script: str) -> str:
    """Run Python code as nobody: permissions are dropped after the imports, as the interpreter may be root's own."""
    drop = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)"
    imports, rest = script.split("\nselection = ", 1)
    whole = f"{imports}\nimport systemd._reader\n{drop}\nselection = {rest}"
    done = subprocess.run(
        [sys.executable, "-c", whole], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
