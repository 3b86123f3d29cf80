"""What must go on while a disk hangs, and who waits for it: for tests with hanging_disk.py and the real daemon."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import pytest

from kvexporter.daemon import START_SECONDS
from tests.support.exporter import Exporter
from tests.support.hanging_disk import HangingDisk
from tests.support.journal_files import LiveJournalFile
from tests.support.paths import wait_for

SLOWEST = 1.0
"""Seconds that any scrape may take on a machine that does other work too; what hangs hangs for much longer."""
LATE = 10.0
"""Seconds within which a line is counted on such a machine."""
STOP_SECONDS = 25.0
COUNT = "llama_request_tokens_count"


def line(number: int) -> str:
    """A line that COUNT counts."""
    return f"slot release: id  0 | task {number} | stop processing: n_tokens = 7, truncated = 0"


def with_journal(journal: LiveJournalFile) -> dict[str, Any]:
    """The configuration of a server whose log is this journal; its name is the unit's."""
    return {"unit": journal.unit, "journal": {"directory": str(journal.directory)}}


def config(*servers: dict[str, Any]) -> dict[str, Any]:
    """A configuration with these servers alone."""
    return {"discovery": False, "servers": list(servers)}


@contextmanager
def notified(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What systemd would hear of programs that are started."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(folder / "notify"))
        notify.settimeout(START_SECONDS + 30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
        yield notify


class Scraping:
    """Scrapes all the time while the good server's lines are written: neither may ever wait. A context manager."""

    def __init__(self, exporter: Exporter, journal: LiveJournalFile) -> None:
        self._url = f"{exporter.url}/metrics"
        self._exporter = exporter
        self._journal = journal
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._scrape), threading.Thread(target=self._write)]
        self.seconds: list[float] = []
        self.lateness: list[float] = []
        self.failures: list[str] = []

    def __enter__(self) -> Scraping:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        if error is None:
            print(f"{len(self.seconds)} scrapes, slowest {max(self.seconds):.3f} s; latest {max(self.lateness):.2f} s")
            assert self.failures == []
            assert max(self.seconds) < SLOWEST

    def _scrape(self) -> None:
        with httpx.Client(trust_env=False, timeout=20) as client:
            while not self._stop.wait(0.1):
                began = time.monotonic()
                try:
                    client.get(self._url).raise_for_status()
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                self.seconds.append(time.monotonic() - began)

    def _write(self) -> None:
        counted = int(self._exporter.scrape().value(COUNT, server="good") or 0)
        while not self._stop.wait(0.5):
            counted += 1
            began = time.monotonic()
            self._journal.write(line(counted))
            try:
                self._exporter.wait_value(counted, COUNT, LATE, server="good")
            except AssertionError as error:
                self.failures.append(str(error))
                return
            self.lateness.append(time.monotonic() - began)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(word) for text in threads(pid, "children") for word in text.split()]


def threads(pid: int, file: str) -> list[str]:
    """What one of the kernel's files says of each thread of a process that is there."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            found.append((task / file).read_text())
    return found


def states(pid: int) -> set[str]:
    """The states of a process's threads, as the kernel has them: Z ended, D waits for a disk and cannot be ended."""
    return {text.rpartition(")")[2].split()[0] for text in threads(pid, "stat")}


def wait_held(*pids: int) -> None:
    """Until a thread of one of these processes waits for the disk."""

    def held() -> bool:
        channels = [channel for pid in pids for channel in threads(pid, "wchan")]
        return any("fuse" in channel or "request_wait_answer" in channel for channel in channels)

    wait_for("something to hang", held, 120)


def end(exporter: Exporter, disk: HangingDisk) -> None:
    """SIGTERM while the disk hangs: all that can be ended ends soon, and the rest when the disk goes on."""
    pids = [exporter.pid, *children(exporter.pid)]
    began = time.monotonic()
    os.kill(exporter.pid, signal.SIGTERM)
    for pid in pids:
        wait_for(
            f"process {pid} to end or to be held by the disk alone",
            lambda pid=pid: states(pid) <= {"Z", "X", "D"},  # type: ignore[misc]
            STOP_SECONDS,
        )
    print(f"ended after {time.monotonic() - began:.1f} s: {[states(pid) for pid in pids]}")
    with socket.create_server(("127.0.0.1", exporter.port)):
        pass  # the next exporter can begin
    disk.go_on()
    assert exporter.wait_end() == 0
    for pid in pids:
        wait_for(f"process {pid} to end", lambda pid=pid: states(pid) <= {"Z"}, 30)  # type: ignore[misc]
    assert "Traceback" not in exporter.log()
