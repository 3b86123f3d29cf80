"""A journal reader with what it has read, for tests."""

from __future__ import annotations

import select
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kvexporter.facts import JournalEntry, UnitEvent
from kvexporter.sources.drain import DrainResult
from kvexporter.sources.journal import JournalReader
from kvexporter.sources.journal_position import JournalStart
from kvexporter.sources.journal_selection import JournalSelection
from tests.support.each import each
from tests.support.paths import wait_for

UNIT = "llama-server.service"


def everything(_message: bytes) -> bool:
    return True


class CollectedJournal:
    """Follows a selection as the daemon does (descriptor, drain, stale check) and keeps every entry."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        selection: JournalSelection | None = None,
        wanted: Callable[[bytes], bool] = everything,
        own_pid: int | None = None,
    ) -> None:
        if selection is None:
            selection = JournalSelection(unit=UNIT, directory=str(directory))
        self.reader = JournalReader(selection, each(wanted), own_pid=own_pid)
        self.entries: list[JournalEntry] = []
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def open(self, cursor: str | None = None, *, head: bool = False) -> JournalStart:
        return self.reader.open(cursor, seek="head" if head else "invocation")

    @property
    def messages(self) -> list[bytes]:
        return [entry.message for entry in self.entries if entry.unit_event is None]

    @property
    def events(self) -> list[UnitEvent]:
        return [entry.unit_event for entry in self.entries if entry.unit_event is not None]

    def drain(self) -> DrainResult:
        """Read all that is there."""
        while True:
            result = self.reader.drain(0.05, self.entries.append)
            for name in ("read", "wanted", "unit_events", "malformed", "continued", "reopened", "gap"):
                self.counts[name] += getattr(result, name)
            if result.failure is not None:
                self.failures.append(result.failure)
            if not result.more:
                return result

    def follow_until(self, what: str, done: Callable[[], bool], deadline: float = 30.0) -> None:
        """Wait on the descriptor and drain, until `done`."""

        def step() -> bool:
            select.select([self.reader.fileno()], [], [], 0.05)
            self.drain()
            self.reader.stale_check()
            return done()

        wait_for(what, step, deadline, interval=0.0)

    def follow_for(self, seconds: float) -> None:
        """Follow for a while, whatever comes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            select.select([self.reader.fileno()], [], [], 0.05)
            self.drain()

    def close(self) -> None:
        self.reader.close()


def deleted_files_held() -> list[str]:
    """Journal files that this process holds open though they are deleted."""
    held = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.endswith("(deleted)") and "journal" in target:
            held.append(target)
    return held
