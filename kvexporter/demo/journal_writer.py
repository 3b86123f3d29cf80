"""A real journal for the stand-in's log: a journal file of its own where that can be made, else this host's journal."""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol

JOURNAL_REMOTE = Path("/lib/systemd/systemd-journal-remote")
JOURNALD_STREAM = Path("/run/systemd/journal/stdout")
UNIT = "llama-server.service"
IDENTIFIER = "kvexporter-demo"


class NoJournalError(Exception):
    """No journal can be written on this host; the text says what to install."""


class DemoJournal(Protocol):
    """Where the stand-in's log goes."""

    description: str
    """Where it is, for a person."""
    server_config: str
    """The lines of the exporter's configuration that make it read this journal for a server, as YAML."""
    child_stdout: int
    """What the stand-in gets as its standard output."""

    def write(self, message: bytes, pid: int) -> None:
        """Store one line that process `pid` wrote; only where `child_stdout` is a pipe."""

    def close(self) -> None:
        """End it."""


class JournalFile:
    """A journal file in a folder of its own, written by systemd-journal-remote; its entries are those of a unit."""

    child_stdout: int = subprocess.PIPE

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.description = f"journalctl -D {directory} -u {UNIT} -f"
        self.server_config = f"unit: {UNIT}\n    journal: {{directory: {directory}}}"
        self._process = subprocess.Popen(
            [JOURNAL_REMOTE, "-o", directory / "demo.journal", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def write(self, message: bytes, pid: int) -> None:
        assert self._process.stdin is not None  # noqa: S101 - opened as a pipe above
        self._process.stdin.write(export_entry(unit_entry(message, pid)))
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - opened as a pipe above
        try:
            self._process.stdin.close()
            self._process.wait(10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()


class HostJournal:
    """The host's own journald. Its entries stay there after the demonstration, under an identifier of their own."""

    def __init__(self) -> None:
        self.description = f"journalctl -t {IDENTIFIER} -f (this host's journal: its lines stay there)"
        self.server_config = f"journal: {{matches: [{{SYSLOG_IDENTIFIER: {IDENTIFIER}}}]}}"
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(str(JOURNALD_STREAM))
        stream.shutdown(socket.SHUT_RD)
        # journald's stream header: identifier, unit, priority, level prefixes, forwarding to syslog, kmsg and console.
        stream.sendall(f"{IDENTIFIER}\n\n6\n0\n0\n0\n0\n".encode())
        self.child_stdout: int = stream.fileno()
        self._stream = stream

    def write(self, message: bytes, pid: int) -> None:
        raise NotImplementedError("the stand-in writes to journald itself")

    def close(self) -> None:
        self._stream.close()


def open_journal(directory: Path) -> DemoJournal:
    """Make the best journal that this host allows. Raises NoJournalError with what to install."""
    if JOURNAL_REMOTE.exists():
        return JournalFile(directory)
    try:
        return HostJournal()
    except OSError:
        raise NoJournalError(
            f"no journal can be written here: {JOURNAL_REMOTE} is missing (apt-get install systemd-journal-remote) "
            "and no journald runs"
        ) from None


def unit_entry(message: bytes, pid: int) -> dict[str, bytes | str]:
    """The fields that journald would give a line of a unit's process."""
    return {
        "__REALTIME_TIMESTAMP": str(time.time_ns() // 1000),
        "__MONOTONIC_TIMESTAMP": str(time.monotonic_ns() // 1000),
        "_BOOT_ID": _boot_id(),
        "_HOSTNAME": socket.gethostname(),
        "PRIORITY": "6",
        "_TRANSPORT": "stdout",
        "_PID": str(pid),
        "_COMM": "llama-server",
        "_SYSTEMD_UNIT": UNIT,
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


def copy_lines(output: IO[bytes], journal: DemoJournal, pid: int) -> None:
    """Write a process's output to a journal, line by line, until it ends."""
    with output:
        for line in output:
            journal.write(line.rstrip(b"\n"), pid)


def _is_line(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return all(byte >= 32 or byte == 9 for byte in data)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
