"""The real daemon with logs or the store on a disk that really hangs: all else goes on, and nothing is lost.

See tests/support/hanging_disk.py. Each waits as long as the daemon does in earnest, so this takes some minutes.
"""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvexporter.keeper import HANGING_SECONDS
from kvexporter.reading.link import SILENT_SECONDS
from tests.support.beside_hanging import COUNT, Scraping, children, config, end, line, wait_held, with_journal
from tests.support.exporter import Exporter
from tests.support.hanging_disk import HangingDisk, hanging_disk
from tests.support.journal_files import LiveJournalFile
from tests.support.paths import wait_for

TOLD = SILENT_SECONDS + 30.0
MARKS = {"journal": "journal.service", "file": "llama.log"}
"""How the exporter's own log calls them."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[HangingDisk]:
    with hanging_disk(tmp_path / "hanging") as made:
        yield made


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[HangingDisk]:
    with hanging_disk(tmp_path / "other") as made:
        yield made


@pytest.fixture
def good(tmp_path: Path) -> Iterator[LiveJournalFile]:
    """The journal of a server whose disk is well."""
    with LiveJournalFile(tmp_path / "good", unit="good.service") as journal:
        yield journal


def with_log(path: Path) -> dict[str, Any]:
    return {"name": "file", "url": "http://127.0.0.1:9", "log": {"file": str(path)}}


def lines(first: int, after: int) -> str:
    return "".join(f"{line(number)}\n" for number in range(first, after))


def told(exporter: Exporter, words: str) -> set[str]:
    """Of which logs the exporter's own log says this."""
    said = [text for text in exporter.log().splitlines() if words in text]
    return {name for name in ("journal", "file") if any(MARKS[name] in text for text in said)}


@contextmanager
def appending(path: Path, disk: HangingDisk) -> Iterator[Callable[[str], None]]:
    """Appends to a file from a process of its own, which hangs with the disk."""
    with subprocess.Popen(["tee", "-a", path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as writer:
        assert writer.stdin is not None
        pipe = writer.stdin

        def append(text: str) -> None:
            pipe.write(text.encode())
            pipe.flush()

        try:
            yield append
        finally:
            disk.go_on()


@contextmanager
def bad_journal(disk: HangingDisk) -> Iterator[LiveJournalFile]:
    journal = LiveJournalFile(disk.path / "journal", unit="journal.service")
    with journal:
        try:
            yield journal
        finally:
            disk.go_on()  # its writer hangs too


def test_logs_on_hung_disks_are_told_hold_up_no_other_and_are_counted_exactly_once(
    disk: HangingDisk, other_disk: HangingDisk, good: LiveJournalFile
) -> None:
    path = other_disk.path / "llama.log"
    path.write_text(lines(0, 10))
    good.write(line(0))
    with bad_journal(disk) as journal, appending(path, other_disk) as append:
        journal.write_burst(lines(0, 10).splitlines())
        servers = with_journal(good), with_journal(journal), with_log(path)
        with Exporter(config(*servers)) as exporter:
            for name, count in (("good", 1), ("journal", 10), ("file", 10)):
                exporter.wait_value(count, COUNT, server=name)
            disk.hang()
            other_disk.hang()
            with Scraping(exporter, good):
                for number in range(10, 20):
                    journal.write(line(number))
                append(lines(10, 20))
                wait_for(
                    "both to be told",
                    lambda: {"journal", "file"} <= told(exporter, "is the disk hanging?"),
                    TOLD,
                )
                shown = exporter.scrape()
                assert shown.value("kvexporter_collector_success", collector="journal") == 0
                assert shown.value(COUNT, server="file") == 10
                # Not all: the writer hangs too, though what is written into memory before that can still be read.
                assert 10 <= (shown.value(COUNT, server="journal") or 0) < 20
                disk.go_on()
                exporter.wait_value(20, COUNT, server="journal")
                assert exporter.scrape().value(COUNT, server="file") == 10
                other_disk.go_on()
                exporter.wait_value(20, COUNT, server="file")
                exporter.wait_value(1, "kvexporter_collector_success", TOLD, collector="journal")
            exporter.kill()
            journal.write(line(20))
            append(lines(20, 21))
            exporter.launch()
            exporter.wait_ready()
            for name in ("journal", "file"):
                exporter.wait_value(21, COUNT, server=name)
            assert exporter.scrape().value("kvexporter_journal_gaps_total") == 0


@pytest.mark.parametrize("unkillable", [False, True], ids=["as NFS", "as a local disk"])
def test_an_exporter_whose_logs_disk_hangs_can_be_stopped(
    disk: HangingDisk, good: LiveJournalFile, unkillable: bool
) -> None:
    path = disk.path / "llama.log"
    path.write_text(lines(0, 1))
    good.write(line(0))
    with bad_journal(disk) as journal:
        journal.write(line(0))
        with Exporter(config(with_journal(good), with_log(path), with_journal(journal))) as exporter:
            exporter.wait_value(1, COUNT, server="file")
            exporter.wait_value(1, COUNT, server="journal")
            disk.hang(unkillable=unkillable)
            wait_held(*children(exporter.pid))
            end(exporter, disk)


def stored(path: Path) -> int:
    """How often what was counted has been written."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return int(database.execute("SELECT count(*) FROM request WHERE server = 'good'").fetchone()[0])


def test_a_store_on_a_hung_disk_is_told_holds_up_nothing_and_is_written_when_the_disk_goes_on(
    disk: HangingDisk, good: LiveJournalFile
) -> None:
    store = disk.path / "state" / "kvexporter.db"
    good.write(line(0))
    with Exporter(config(with_journal(good)), "--storage.path", str(store)) as exporter:
        exporter.wait_value(1, COUNT, server="good")
        wait_for("the first commit", lambda: stored(store) == 1)
        disk.hang()
        with Scraping(exporter, good) as scraping:
            shown = exporter.wait_value(0, "kvexporter_collector_success", HANGING_SECONDS + 30, collector="store")
            assert shown.value("kvexporter_store_errors_total") == 1
            assert "a commit has not come back: is the disk hanging?" in exporter.log()
            counted = len(scraping.lateness)
            wait_for("more to be counted", lambda: len(scraping.lateness) > counted + 5)
            disk.go_on()
            exporter.wait_value(1, "kvexporter_collector_success", collector="store")
        counted = int(exporter.scrape().value(COUNT, server="good") or 0)
        wait_for("all to be written", lambda: stored(store) == counted)
        exporter.kill()
        good.write(line(counted))
        exporter.launch()
        exporter.wait_ready()
        exporter.wait_value(counted + 1, COUNT, server="good")
        assert exporter.scrape().value("kvexporter_journal_gaps_total") == 0


@pytest.mark.parametrize("unkillable", [False, True], ids=["as NFS", "as a local disk"])
def test_an_exporter_whose_stores_disk_hangs_can_be_stopped(
    disk: HangingDisk, good: LiveJournalFile, unkillable: bool
) -> None:
    store = disk.path / "kvexporter.db"
    good.write(line(0))
    with Exporter(config(with_journal(good)), "--storage.path", str(store)) as exporter:
        exporter.wait_value(1, COUNT, server="good")
        wait_for("the first commit", lambda: stored(store) == 1)
        disk.hang(unkillable=unkillable)
        good.write(line(1))
        wait_held(exporter.pid)
        end(exporter, disk)
        exporter.launch()
        exporter.wait_ready()
        exporter.wait_value(2, COUNT, server="good")
