"""Where the stand-ins' logs go: a real journal of their own where that can be made, else files.

This host's own journal is never written to: what is in there stays.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol

from kvexporter.sources.journal_library import journal_available

JOURNAL_REMOTE = Path("/lib/systemd/systemd-journal-remote")
UNIT = "llama-server.service"


class DemoJournal(Protocol):
    """Where the stand-ins' logs go."""

    description: str
    """How a person reads it."""
    lacks: str
    """What it cannot hold, and what to install for that; "" if nothing."""

    def server_config(self, unit: str) -> str:
        """The lines of the exporter's configuration that make it read a unit's log from here, as YAML."""

    def write(self, message: bytes, pid: int, unit: str = UNIT) -> None:
        """Store one line that process `pid` of a unit wrote."""

    def write_fields(self, fields: Mapping[str, bytes | str]) -> None:
        """Store an entry of systemd's, where such can be stored."""

    def failed(self) -> bool:
        """Whether it can store nothing any more."""

    def close(self) -> None:
        """End it."""


class JournalFile:
    """A journal file in a folder of its own, written by systemd-journal-remote; its entries are those of units."""

    lacks = ""

    def __init__(self, directory: Path, environment: Mapping[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.description = f"journalctl -D {directory} -f"
        self._directory = directory
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [JOURNAL_REMOTE, "-o", directory / "demo.journal", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )

    def server_config(self, unit: str) -> str:
        return f"unit: {unit}\n    journal: {{directory: {self._directory}}}"

    def write(self, message: bytes, pid: int, unit: str = UNIT) -> None:
        self._store(unit_entry(message, pid, unit))

    def write_fields(self, fields: Mapping[str, bytes | str]) -> None:
        self._store({**_times(), **fields})

    def _store(self, fields: Mapping[str, bytes | str]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - opened as a pipe above
        with self._lock:
            if self._process.stdin.closed:
                return  # a unit's last words, after the end
            try:
                self._process.stdin.write(export_entry(fields))
                self._process.stdin.flush()
            except BrokenPipeError:
                return  # whoever watches sees it in `failed`

    def failed(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - opened as a pipe above
        try:
            with self._lock:
                self._process.stdin.close()
            self._process.wait(5)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()


class LogFiles:
    """One file for each unit, as `StandardOutput=append:` makes them. What systemd says is not in them."""

    def __init__(self, directory: Path, lacks: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.description = f"tail -F {directory}/*.log"
        self.lacks = lacks
        self._directory = directory
        self._lock = threading.Lock()
        self._files: dict[str, IO[bytes]] = {}

    def _path(self, unit: str) -> Path:
        return self._directory / f"{unit.removesuffix('.service')}.log"

    def server_config(self, unit: str) -> str:
        self._path(unit).touch()
        return f"log: {{file: {self._path(unit)}}}"

    def write(self, message: bytes, pid: int, unit: str = UNIT) -> None:
        with self._lock:
            if unit not in self._files:
                self._files[unit] = self._path(unit).open("ab", buffering=0)
            if not self._files[unit].closed:
                self._files[unit].write(message + b"\n")

    def write_fields(self, fields: Mapping[str, bytes | str]) -> None:
        pass

    def failed(self) -> bool:
        return False

    def close(self) -> None:
        with self._lock:
            for file in self._files.values():
                file.close()


def open_journal(directory: Path, environment: Mapping[str, str] | None = None) -> DemoJournal:
    """Make the best that this host allows; `environment` is that of the journal's process."""
    lacks = journal_available()
    if lacks is None and JOURNAL_REMOTE.exists():
        return JournalFile(directory, environment)
    if lacks is None:
        lacks = f"{JOURNAL_REMOTE} is missing (apt-get install systemd-journal-remote)"
    return LogFiles(directory, lacks)


def _times() -> dict[str, bytes | str]:
    return {
        "__REALTIME_TIMESTAMP": str(time.time_ns() // 1000),
        "__MONOTONIC_TIMESTAMP": str(time.monotonic_ns() // 1000),
        "_BOOT_ID": _boot_id(),
        "_HOSTNAME": socket.gethostname(),
    }


def unit_entry(message: bytes, pid: int, unit: str = UNIT) -> dict[str, bytes | str]:
    """The fields that journald would give a line of a unit's process."""
    return {
        **_times(),
        "PRIORITY": "6",
        "_TRANSPORT": "stdout",
        "_PID": str(pid),
        "_COMM": "llama-server",
        "_SYSTEMD_UNIT": unit,
        "SYSLOG_IDENTIFIER": "llama-server",
        "MESSAGE": message,
    }


def export_entry(fields: Mapping[str, bytes | str]) -> bytes:
    """One entry in the journal export format; a value that is no line of text goes with its length before it."""
    parts = []
    for name, value in fields.items():
        data = value.encode() if isinstance(value, str) else value
        if _is_line(data):
            parts.append(name.encode() + b"=" + data + b"\n")
        else:
            parts.append(name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n")
    return b"".join(parts) + b"\n"


def copy_lines(output: IO[bytes], journal: DemoJournal, pid: int, unit: str = UNIT) -> None:
    """Write a process's output to a journal, line by line, until it ends."""
    with output:
        for line in output:
            journal.write(line.rstrip(b"\n"), pid, unit)


def _is_line(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return all(byte >= 32 or byte == 9 for byte in data)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
