"""A log file as its writer and logrotate see it, with numbered lines, and a reader that keeps what it read."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

from kvexporter.facts import JournalEntry
from kvexporter.sources.drain import DrainResult
from kvexporter.sources.log_selection import LogFileSelection
from kvexporter.sources.log_tail import LogTail
from tests.support.each import each


class LogFile:
    """Writes numbered lines into a log, and rotates it in every way there is."""

    def __init__(self, path: Path, *, append: bool = True) -> None:
        """`append`: as the shell's `>>` and systemd do; else as llama-server's --log-file: emptied first."""
        self.path = path
        self.append = append
        self.written = 0
        """Whole lines so far; they are numbered from 0."""
        self._stamp = 1_700_000_000
        self._descriptor = self._open()

    def _open(self) -> int:
        how = os.O_APPEND if self.append else os.O_TRUNC
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o644)
        self._touch(descriptor)
        return descriptor

    def _touch(self, descriptor: int) -> None:
        # Files that are written one after the other have different times, however fast a test is.
        self._stamp += 1
        os.utime(descriptor, (self._stamp, self._stamp))

    def write(self, lines: int = 1) -> None:
        """Write whole lines."""
        for _ in range(lines):
            self.write_bytes(b"line %d\n" % self.written)
            self.written += 1

    def write_bytes(self, data: bytes) -> None:
        os.write(self._descriptor, data)
        self._touch(self._descriptor)

    def reopen(self) -> None:
        """What a server does that is started anew, or told that its log was rotated."""
        os.close(self._descriptor)
        self._descriptor = self._open()

    def close(self) -> None:
        os.close(self._descriptor)

    # ---- rotation --------------------------------------------------------------------------------------------------

    def numbered(self) -> list[Path]:
        """Rotated files, newest first."""
        found = self.path.parent.glob(self.path.name + ".[0-9]*")
        return sorted(found, key=lambda path: int(path.name.removesuffix(".gz").rsplit(".", 1)[1]))

    def shift(self) -> Path:
        """Make room for a new first rotated file."""
        for path in reversed(self.numbered()):
            packed = path.suffix == ".gz"
            number = int(path.name.removesuffix(".gz").rsplit(".", 1)[1])
            path.rename(self.path.with_name(f"{self.path.name}.{number + 1}{'.gz' if packed else ''}"))
        return self.path.with_name(self.path.name + ".1")

    def rename(self) -> Path:
        """Move the file away; its writer goes on in it until it opens the log anew."""
        place = self.shift()
        self.path.rename(place)
        return place

    def copy_truncate(self) -> Path:
        """Copy the file and empty it under its writer."""
        place = self.shift()
        shutil.copy2(self.path, place)
        os.truncate(self.path, 0)
        self._touch(self._descriptor)
        return place

    def pack(self, path: Path) -> Path:
        """Pack a rotated file, as logrotate does: with the times of the plain one."""
        packed = path.with_name(path.name + ".gz")
        with path.open("rb") as plain, gzip.open(packed, "wb") as stream:
            shutil.copyfileobj(plain, stream)
        status = path.stat()
        os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
        path.unlink()
        return packed


class Reader:
    """Reads a log with the exporter's own tail, and can be started anew at the position it left."""

    def __init__(self, path: Path, position: str | None = None) -> None:
        self.path = path
        self.lines: list[bytes] = []
        self.gaps = 0
        self.last = DrainResult()
        self._texts: list[bytes] = []
        self.entries: list[JournalEntry] = []
        self.tail = self._start(position)

    def _start(self, position: str | None) -> LogTail:
        def keep(text: bytes) -> bool:
            self._texts.append(text)
            return True

        tail = LogTail(LogFileSelection(str(self.path)), each(keep))
        tail.open(position)
        return tail

    def read(self, budget: float = 60.0) -> DrainResult:
        """Read what there is."""
        self.last = self.tail.drain(budget, self.entries.append)
        self.lines += self._texts
        self._texts.clear()
        self.gaps += self.last.gap
        return self.last

    def restart(self) -> None:
        """Start anew after a crash right after a commit: at the last position, and with no memory of anything else."""
        position = self.tail.position()
        self.tail.close()
        self.tail = self._start(position)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the lines that were read; -1 for what is no whole line."""
        return [int(line[5:]) if line.startswith(b"line ") and line[5:].isdigit() else -1 for line in self.lines]
