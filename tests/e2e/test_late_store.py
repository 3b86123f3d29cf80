"""A store whose disk hangs at the start and answers later: the exporter begins anew in place, and nothing is lost.

See tests/support/hanging_disk.py, and early_anew.py for what is sooner here than in earnest.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import httpx
import pytest

from kvexporter.keeper import HANGING_SECONDS
from tests.support.beside_hanging import COUNT, children, config, line, notified, with_journal
from tests.support.early_anew import ANEW, OPEN
from tests.support.exporter import Exporter
from tests.support.hanging_disk import HangingDisk, hanging_disk
from tests.support.journal_files import LiveJournalFile
from tests.support.paths import wait_for

MODULE = "tests.support.early_anew"
NOT_KEPT = "nothing is kept over a restart until it can be used"
ANEW_NOW = "the store can be used now: kvexporter begins anew, and counts go on from what it holds"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[HangingDisk]:
    with hanging_disk(tmp_path / "hanging") as made:
        yield made


@pytest.fixture
def good(tmp_path: Path) -> Iterator[LiveJournalFile]:
    with LiveJournalFile(tmp_path / "good", unit="good.service") as journal:
        yield journal


@contextmanager
def launched(exporter: Exporter) -> Iterator[Exporter]:
    """The exporter, which is not ready for a while."""
    exporter.launch()
    try:
        yield exporter
    finally:
        exporter.__exit__(None, None, None)


def wait_said(exporter: Exporter, words: str, deadline: float) -> None:
    wait_for(f"{words!r} to be said", lambda: words in exporter.log(), deadline)


def request_numbers(store: Path) -> list[int]:
    """Under which numbers the good server's requests are kept."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT number FROM request WHERE server = 'good' ORDER BY number").fetchall()
    return [number for (number,) in rows]


def test_it_counts_without_the_store_while_its_disk_hangs_and_begins_anew_in_place_when_it_answers(
    disk: HangingDisk, good: LiveJournalFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, numbers = disk.path / "kvexporter.db", count()

    def write(run: str) -> None:
        good.write(line(next(numbers)), _SYSTEMD_INVOCATION_ID=run * 32)

    write("a")
    with Exporter(config(with_journal(good)), "--storage.path", str(store), module=MODULE) as exporter:
        write("a")
        exporter.wait_value(2, COUNT, server="good")
        assert exporter.stop() == 0
        for run in "abbb":  # the rest of one run of the server, and another one
            write(run)
        disk.hang()
        with notified(tmp_path, monkeypatch) as notify:
            monkeypatch.setenv("WATCHDOG_USEC", "600000000")
            exporter.launch()
            pid = exporter.pid
            shown = exporter.wait_value(0, "kvexporter_collector_success", HANGING_SECONDS + 30, collector="store")
            assert shown.value("kvexporter_store_errors_total") == 1
            # Of what was before nothing is known, so it is as at a first start: the server's current run.
            exporter.wait_value(3, COUNT, OPEN + 30, server="good")
            assert NOT_KEPT in exporter.log()
            write("b")
            exporter.wait_value(4, COUNT, server="good")
            assert ANEW_NOW not in exporter.log()
            before = children(pid)
            disk.go_on()
            seen: set[float | None] = set()

            def gone_on() -> bool:
                try:
                    shown = exporter.scrape()
                except httpx.TransportError:
                    return False  # neither process listens
                seen.add(shown.value(COUNT, server="good"))
                return shown.value("kvexporter_collector_success", collector="store") == 1 and 7 in seen

            wait_for("it to go on from what the store holds", gone_on, ANEW + 60, interval=0.02)
            exporter.wait_ready()
            assert exporter.pid == pid
            assert exporter.log().count(ANEW_NOW) == 1
            # Each line once; none of the past is counted up before everybody's eyes.
            assert seen <= {4, None, 7}
            notify.setblocking(False)
            heard = []
            while True:
                try:
                    heard.append(notify.recv(4096).decode())
                except BlockingIOError:
                    break
        assert set(children(pid)).isdisjoint(before)
        # To systemd it is one service that never stopped, in which a process said twice that it is ready.
        assert not any("STOPPING=1" in message for message in heard)
        kinds = [message.partition(chr(10))[0] for message in heard]
        anew = next(number for number, kind in enumerate(kinds) if kind.startswith("STATUS=beginning anew"))
        assert "READY=1" in kinds[:anew]
        assert "READY=1" in kinds[anew:]
        assert "WATCHDOG=1" in kinds[kinds.index("READY=1", anew) :], "its watchdog is fed by the new process"
        write("b")
        exporter.wait_value(8, COUNT, server="good")
        wait_for("all to be written", lambda: request_numbers(store) == list(range(1, 9)))
        assert exporter.scrape().value("kvexporter_journal_gaps_total") == 0
        assert exporter.stop() == 0
        assert "Traceback" not in exporter.log()


def test_who_is_told_to_end_while_it_begins_anew_ends(disk: HangingDisk, good: LiveJournalFile) -> None:
    good.write(line(0))
    store = disk.path / "kvexporter.db"
    disk.hang()
    with launched(Exporter(config(with_journal(good)), "--storage.path", str(store), module=MODULE)) as exporter:
        wait_said(exporter, NOT_KEPT, OPEN + 30)
        disk.go_on()
        wait_said(exporter, ANEW_NOW, ANEW + 60)
        os.kill(exporter.pid, signal.SIGTERM)
        assert exporter.wait_end() == 0
        exporter.launch()
        exporter.wait_ready()
        exporter.wait_value(1, COUNT, server="good")
        assert "Traceback" not in exporter.log()


def test_what_came_over_standard_input_is_not_given_up_for_a_store_that_answers_late(disk: HangingDisk) -> None:
    store = disk.path / "kvexporter.db"
    source, sink = os.pipe()
    disk.hang()
    options = ("--log.stdin", "--name=good", "--url=http://127.0.0.1:9", "--storage.path", str(store))
    with launched(Exporter(None, *options, module=MODULE, stdin=source)) as exporter:
        os.close(source)
        os.write(sink, f"{line(0)}\n{line(1)}\n".encode())
        exporter.wait_value(2, COUNT, OPEN + 30, server="good")
        disk.go_on()
        wait_said(exporter, "until you start kvexporter again", ANEW + 60)
        os.write(sink, f"{line(2)}\n".encode())
        exporter.wait_value(3, COUNT, server="good")
        assert exporter.log().count("the store can be used now") == 1
        assert exporter.stop() == 0
        assert "begins anew" not in exporter.log()
    os.close(sink)
