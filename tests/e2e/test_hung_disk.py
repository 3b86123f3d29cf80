"""The real daemon with logs or the store on a disk that really hangs: all else goes on, and nothing is lost.

See tests/support/hanging_disk.py. Each waits as long as the daemon does in earnest, so this takes some minutes.
"""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
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


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[HangingDisk]:
    with hanging_disk(tmp_path / "hanging") as made:
        yield made


@pytest.fixture
def good(tmp_path: Path) -> Iterator[LiveJournalFile]:
    """The journal of a server whose disk is well."""
    with LiveJournalFile(tmp_path / "good", unit="good.service") as journal:
        yield journal


def with_log(path: Path) -> dict[str, Any]:
    return {"name": "bad", "url": "http://127.0.0.1:9", "log": {"file": str(path)}}


@contextmanager
def bad_journal(disk: HangingDisk) -> Iterator[LiveJournalFile]:
    journal = LiveJournalFile(disk.path / "journal", unit="bad.service")
    with journal:
        try:
            yield journal
        finally:
            disk.go_on()  # its writer hangs too


def test_a_journal_on_a_hung_disk_is_told_holds_up_no_other_and_is_counted_exactly_once(
    disk: HangingDisk, good: LiveJournalFile
) -> None:
    with bad_journal(disk) as bad:
        good.write(line(0))
        bad.write_burst([line(number) for number in range(10)])
        with Exporter(config(with_journal(good), with_journal(bad))) as exporter:
            exporter.wait_value(10, COUNT, server="bad")
            exporter.wait_value(1, COUNT, server="good")
            disk.hang()
            with Scraping(exporter, good):
                for number in range(10, 20):
                    bad.write(line(number))
                shown = exporter.wait_value(0, "kvexporter_collector_success", TOLD, collector="journal")
                # Not all: the writer hangs too, though what is written into memory before that can still be read.
                assert 10 <= (shown.value(COUNT, server="bad") or 0) < 20
                assert "is the disk hanging?" in exporter.log()
                disk.go_on()
                exporter.wait_value(20, COUNT, server="bad")
                exporter.wait_value(1, "kvexporter_collector_success", TOLD, collector="journal")
                bad.write(line(20))
                exporter.wait_value(21, COUNT, server="bad")
            exporter.kill()
            exporter.launch()
            exporter.wait_ready()
            assert exporter.scrape().value(COUNT, server="bad") == 21


def test_a_log_file_on_a_hung_disk_is_told_holds_up_no_other_and_is_counted_exactly_once(
    disk: HangingDisk, good: LiveJournalFile
) -> None:
    path = disk.path / "llama.log"
    path.write_text("".join(f"{line(number)}\n" for number in range(10)))
    good.write(line(0))
    with Exporter(config(with_journal(good), with_log(path))) as exporter:
        exporter.wait_value(10, COUNT, server="bad")
        exporter.wait_value(1, COUNT, server="good")
        disk.hang()
        with Scraping(exporter, good):
            more = "".join(f"{line(number)}\n" for number in range(10, 20))
            with subprocess.Popen(["tee", "-a", str(path)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as writer:
                assert writer.stdin is not None
                writer.stdin.write(more.encode())
                writer.stdin.close()
                shown = exporter.wait_value(0, "kvexporter_collector_success", TOLD, collector="journal")
                assert shown.value(COUNT, server="bad") == 10
                assert "is the disk hanging?" in exporter.log()
                disk.go_on()
            exporter.wait_value(20, COUNT, server="bad")
            exporter.wait_value(1, "kvexporter_collector_success", TOLD, collector="journal")
        exporter.kill()
        exporter.launch()
        exporter.wait_ready()
        assert exporter.scrape().value(COUNT, server="bad") == 20


@pytest.mark.parametrize("unkillable", [False, True], ids=["as NFS", "as a local disk"])
def test_an_exporter_whose_logs_disk_hangs_can_be_stopped(
    disk: HangingDisk, good: LiveJournalFile, unkillable: bool
) -> None:
    path = disk.path / "llama.log"
    path.write_text(f"{line(0)}\n")
    good.write(line(0))
    with bad_journal(disk) as bad:
        bad.write(line(0))
        servers = with_journal(good), with_log(path), {"name": "other", **with_journal(bad)}
        with Exporter(config(*servers)) as exporter:
            exporter.wait_value(1, COUNT, server="bad")
            exporter.wait_value(1, COUNT, server="other")
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
