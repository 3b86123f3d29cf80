"""Real journal files under full control of a test: every field, also the trusted ones, is what the test says."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from kvexporter.demo.journal_writer import JOURNAL_REMOTE, export_entry
from tests.support.paths import SetupMissingError, wait_for

BOOT_ID = "0" * 31 + "1"
MACHINE_ID = "0" * 31 + "2"


def journal_remote() -> Path:
    """systemd-journal-remote, which turns the export format into journal files."""
    if not JOURNAL_REMOTE.exists():
        raise SetupMissingError("systemd-journal-remote")
    return JOURNAL_REMOTE


def journal_from_export(export: bytes, directory: Path, name: str = "recorded.journal") -> Path:
    """Turn entries in the journal export format into a journal file in `directory`; give the file's path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    done = subprocess.run(
        [journal_remote(), "-o", path, "-"], input=export, capture_output=True, timeout=120, check=False
    )
    if done.returncode != 0 or not path.exists():
        raise RuntimeError(f"systemd-journal-remote: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
    return path


class LiveJournalFile:
    """A journal file that grows while a test writes to it; a reader opened on `directory` sees each entry at once.

    Use as a context manager. Entries are those of a systemd unit's standard output unless fields say otherwise.
    """

    def __init__(self, directory: Path, unit: str = "llama-server.service", name: str = "live.journal") -> None:
        self.directory = directory
        self.path = directory / name
        self.unit = unit
        self._lock = threading.Lock()
        self._writer: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LiveJournalFile:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._writer = subprocess.Popen(
            [journal_remote(), "-o", self.path, "-"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the file cleanly; what was written is on disk afterwards."""
        if self._writer is not None:
            assert self._writer.stdin is not None
            self._writer.stdin.close()
            self._writer.wait(30)
            self._writer = None

    def write(
        self,
        message: str | bytes,
        *,
        unit: str | None = None,
        pid: int = 4242,
        at: float | None = None,
        **fields: str | bytes,
    ) -> None:
        """Append one entry. `fields` are further journal fields, or replace those given by default; "" drops one."""
        now = time.time() if at is None else at
        self.write_export(self._export(message, unit, pid, now, time.monotonic_ns() // 1000, fields))

    def write_burst(self, messages: Sequence[str | bytes], *, pid: int = 4242, **fields: str | bytes) -> None:
        """Append entries that journald received at once: all of them have the same times."""
        now, monotonic = time.time(), time.monotonic_ns() // 1000
        entries = [self._export(message, None, pid, now, monotonic, fields) for message in messages]
        self.write_export(b"".join(entries))

    def _export(
        self,
        message: str | bytes,
        unit: str | None,
        pid: int,
        now: float,
        monotonic: int,
        fields: Mapping[str, str | bytes],
    ) -> bytes:
        unit = self.unit if unit is None else unit
        entry: dict[str, str | bytes] = {
            "__REALTIME_TIMESTAMP": str(int(now * 1e6)),
            "__MONOTONIC_TIMESTAMP": str(monotonic),
            "_BOOT_ID": BOOT_ID,
            "_MACHINE_ID": MACHINE_ID,
            "_HOSTNAME": "testhost",
            "PRIORITY": "6",
            "_TRANSPORT": "stdout",
            "_PID": str(pid),
            "_UID": "0",
            "_COMM": "llama-server",
            "_SYSTEMD_UNIT": unit,
            "SYSLOG_IDENTIFIER": unit.removesuffix(".service"),
            "MESSAGE": message,
        }
        entry.update(fields)
        return export_entry({name: value for name, value in entry.items() if value != ""})

    def write_export(self, export: bytes) -> None:
        """Append entries that are in the export format already."""
        assert self._writer is not None
        assert self._writer.stdin is not None
        with self._lock:
            self._writer.stdin.write(export)
            self._writer.stdin.flush()

    def wait_for_file(self) -> Path:
        """The journal's file, which appears with its first entry."""
        wait_for(f"{self.path} to appear", self.path.exists)
        return self.path
