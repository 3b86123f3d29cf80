"""Counters are exact whatever dies when: a real journal grows, the real exporter is killed and started again.

KVEXPORTER_KILLS=100 gives the long form; KVEXPORTER_SEED repeats one run's moments.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvexporter.store_schema import SCHEMA_VERSION
from tests.support.counted_log import Series, Writer, count, runs, wait_counted
from tests.support.exporter import Exporter
from tests.support.journal_files import LiveJournalFile
from tests.support.livejournald import LiveJournald
from tests.support.paths import wait_for
from tests.support.scrape import Scrape

KILLS = int(os.environ.get("KVEXPORTER_KILLS", "12"))
RATE = 2000.0
UNIT = "llama-server.service"


def config(directory: Path, **server: Any) -> dict[str, Any]:
    # An address where nobody listens, else the one in the recorded log would be asked.
    entry = {"name": "s", "unit": UNIT, "url": "http://127.0.0.1:9", "journal": {"directory": str(directory)}}
    return {"discovery": False, "servers": [{**entry, **server}]}


@pytest.fixture
def moments() -> random.Random:
    seed = int(os.environ.get("KVEXPORTER_SEED") or random.randrange(2**32))
    print(f"KVEXPORTER_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[LiveJournalFile]:
    with LiveJournalFile(tmp_path / "journal") as growing:
        growing.write("the file appears with its first entry", unit="other.service")
        growing.wait_for_file()
        yield growing


def check(exporter: Exporter, expected: Counter[Series], *, gaps: int = 0) -> Scrape:
    """Wait until all is counted, and demand that it is counted rightly."""
    try:
        return wait_counted(exporter.scrape, expected, gaps=gaps)
    except AssertionError as error:
        raise AssertionError(f"{error}\nthe exporter's log:\n{exporter.log()}") from None


def kill_and_restart(exporter: Exporter, moments: random.Random) -> None:
    """One life: killed while it starts, while it catches up or while it follows."""
    time.sleep(moments.choice((0.3, 0.8, 2.5)) * moments.random())
    exporter.kill()
    exporter.launch()


def test_counts_are_exact_after_kills_at_random_moments(journal: LiveJournalFile, moments: random.Random) -> None:
    with Exporter(config(journal.directory)) as exporter:
        with Writer(journal.write_burst, RATE) as writer:
            for _ in range(KILLS):
                kill_and_restart(exporter, moments)
        exporter.wait_ready(60)
        check(exporter, writer.expected)
    assert writer.lines > KILLS * 100


def test_counts_are_exact_while_journald_rotates_and_read_files_are_vacuumed(moments: random.Random) -> None:
    with LiveJournald() as journald:
        stream = journald.stream()

        def write(lines: Sequence[str]) -> None:
            stream.sendall("".join(line + "\n" for line in lines).encode())

        with Exporter(config(journald.directory)) as exporter:
            with Writer(write, RATE / 2) as writer:
                for _ in range(KILLS):
                    for _ in range(moments.randrange(3)):
                        journald.rotate()
                        time.sleep(0.1)
                    kill_and_restart(exporter, moments)
                    if moments.random() < 0.5:
                        exporter.wait_ready(60)
                        committed = store_position(exporter.store_file)
                        wait_for(
                            "all older files to be read",
                            lambda since=committed: store_position(exporter.store_file) != since,  # type: ignore[misc]
                        )
                        journald.journalctl("--vacuum-files=8")
            exporter.wait_ready(60)
            check(exporter, writer.expected)


def store_position(store: Path) -> str | None:
    """The journal position that was committed last."""
    try:
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=5) as database:
            row = database.execute("SELECT position FROM feed").fetchone()
        database.close()
    except sqlite3.OperationalError:
        return None
    return None if row is None else str(row[0])


@contextmanager
def small_disk(place: Path, size: str = "3m") -> Iterator[Path]:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return filler


def test_counts_are_exact_when_the_disk_is_full_in_between(
    journal: LiveJournalFile, tmp_path: Path, moments: random.Random
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        store = disk / "kvexporter.db"
        with Exporter(config(journal.directory), f"--storage.path={store}") as exporter:
            with Writer(journal.write_burst, RATE / 4) as writer:
                wait_for("a commit", lambda: store_position(store))
                filler = fill(disk)
                shown = wait_for("the failure to be counted", lambda: store_errors(exporter) or None)
                assert shown >= 1
                before = exporter.scrape().value("llama_request_tokens_count")
                wait_for(
                    "counting to go on",
                    lambda: (exporter.scrape().value("llama_request_tokens_count") or 0) > (before or 0),
                )
                assert exporter.scrape().value("kvexporter_collector_success", collector="store") == 0
                for _ in range(3):
                    kill_and_restart(exporter, moments)
                exporter.wait_ready(60)
                assert exporter.stop() == 0  # what it takes to open a store that was closed cleanly
                exporter.launch()
                exporter.wait_ready(60)
                wait_for("the failure to be counted", lambda: store_errors(exporter) or None)
                filler.unlink()
                wait_for(
                    "the store to be written again",
                    lambda: exporter.scrape().value("kvexporter_collector_success", collector="store") == 1,
                )
                kill_and_restart(exporter, moments)
            exporter.wait_ready(60)
            check(exporter, writer.expected)
            said = exporter.log()
        lives = said.count('msg="kvexporter ')
        assert 1 <= said.count("the store cannot be written") <= lives


def store_errors(exporter: Exporter) -> float:
    return exporter.scrape().value("kvexporter_store_errors_total") or 0


class PastWriter:
    """Writes runs of a server with times of the past, each run as one invocation of its unit."""

    def __init__(self, journal: LiveJournalFile, at: float) -> None:
        self.at = at
        self.expected: Counter[Series] = Counter()
        self._journal = journal
        self._invocation = 0

    def write(self, run: Sequence[str]) -> None:
        self._invocation += 1
        for number, line in enumerate(run):
            self._journal.write(
                line,
                at=self.at + number // 10 * 0.01,  # bursts of ten
                pid=100 + self._invocation,
                _SYSTEMD_INVOCATION_ID=f"{self._invocation:032x}",
            )
        self.at += 10.0
        self.expected += count(run)


DAY = 86_400.0


def test_an_exporter_that_was_down_for_a_day_catches_up_over_the_servers_restarts(journal: LiveJournalFile) -> None:
    past = PastWriter(journal, time.time() - 2 * DAY)
    for run in runs():
        past.write(run)
    # At the first start the current invocation alone counts, from its first line.
    past.expected = count(runs()[-1])
    with Exporter(config(journal.directory)) as exporter:
        check(exporter, past.expected)
        assert exporter.stop() == 0
        for _ in range(20):
            past.at += DAY / 25
            for run in runs():
                past.write(run)
        exporter.launch()
        exporter.wait_ready(60)
        check(exporter, past.expected)


def test_a_vacuum_past_the_position_while_the_exporter_was_down_is_one_gap_and_is_said(moments: random.Random) -> None:
    with LiveJournald() as journald:
        stream = journald.stream()

        def write(run: Sequence[str]) -> None:
            stream.sendall("".join(line + "\n" for line in run).encode())

        with Exporter(config(journald.directory)) as exporter:
            for run in runs():
                write(run)
            read = sum((count(run) for run in runs()), Counter[Series]())
            check(exporter, read)
            assert exporter.stop() == 0
            write(runs()[0])  # never read
            journald.journalctl("--sync")
            journald.journalctl("--rotate")
            journald.journalctl("--vacuum-files=1")
            for run in runs():
                write(run)
            exporter.launch()
            exporter.wait_ready(60)
            shown = check(exporter, read + read, gaps=1)
            said = "the last entry read is gone: counts from it are lower bounds from now on"
            assert exporter.log().count(said) == 1
            assert shown.value("kvexporter_journal_gaps_total") == 1
            assert "entries of it were gone before they were read, once: counts from it are lower bounds" in checked(
                exporter
            )

            assert exporter.stop() == 0
            exporter.launch()
            exporter.wait_ready(60)
            check(exporter, read + read, gaps=1)


def checked(exporter: Exporter) -> str:
    """What `kvexporter check` says of the exporter's configuration and store while it runs."""
    options = (f"--config.file={exporter.config_file}", f"--storage.path={exporter.store_file}")
    command = [sys.executable, "-m", "kvexporter", "check", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout


def test_a_store_that_cannot_be_read_is_set_aside_and_all_that_the_journal_holds_is_counted(
    journal: LiveJournalFile,
) -> None:
    past = PastWriter(journal, time.time() - DAY)
    with Exporter(config(journal.directory)) as exporter:
        for run in runs():
            past.write(run)
        check(exporter, past.expected)
        assert exporter.stop() == 0
        exporter.store_file.write_bytes(b"no database" * 1000)

        exporter.launch()
        exporter.wait_ready(60)
        exporter.kill()  # also when this one dies before it has written anything
        exporter.launch()
        exporter.wait_ready(60)

        check(exporter, past.expected)
        (kept,) = exporter.store_file.parent.glob("kvexporter.db.corrupt-*")
        assert kept.read_bytes() == b"no database" * 1000
        assert f"it is kept as {kept.name}" in exporter.log()


def test_a_store_of_a_newer_version_ends_the_exporter_with_a_clear_line(journal: LiveJournalFile) -> None:
    with Exporter(config(journal.directory)) as exporter:
        assert exporter.stop() == 0
        with sqlite3.connect(exporter.store_file) as database:
            database.execute("PRAGMA user_version = 7")
        database.close()
        exporter.launch()
        assert exporter.wait_end() == 1
        assert f"written by a newer kvexporter (format 7, this one knows {SCHEMA_VERSION})" in exporter.log()


def test_a_second_exporter_on_the_same_store_ends_with_a_clear_line(journal: LiveJournalFile) -> None:
    with Exporter(config(journal.directory)) as first, ExitStack() as stack:
        second = Exporter(config(journal.directory), f"--storage.path={first.store_file}")
        stack.push(second)
        second.launch()
        assert second.wait_end() == 1
        assert "another kvexporter is using this store" in second.log()
        assert first.scrape().value("kvexporter_collector_success", collector="store") == 1


def wait_said(exporter: Exporter, text: str, times: int) -> None:
    wait_for(f"{text}, {times} times", lambda: exporter.log().count(text) >= times)


def test_a_changed_configuration_of_a_server_leaves_its_counts_alone(journal: LiveJournalFile) -> None:
    with Exporter(config(journal.directory)) as exporter:
        with Writer(journal.write_burst, RATE) as writer:
            for number, interval in enumerate(("2s", "3s", "4s"), 1):
                time.sleep(0.3)
                text = yaml.safe_dump(config(journal.directory, poll_interval=interval))
                exporter.config_file.write_text(text)
                os.kill(exporter.pid, signal.SIGHUP)
                wait_said(exporter, "configuration reloaded", number)
        check(exporter, writer.expected)
