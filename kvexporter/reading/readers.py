"""Who reads a log, by its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kvexporter.sources.journal import DrainResult, Handler, JournalReader, Seek
from kvexporter.sources.journal_chunk import Wanted
from kvexporter.sources.journal_position import JournalStart
from kvexporter.sources.log_selection import LogFileSelection, Selection, StdinSelection
from kvexporter.sources.log_stdin import StdinReader
from kvexporter.sources.log_tail import LogTail


class LogReader(Protocol):
    """Reads one log, oldest entry first; see JournalReader, whose errors are those of all."""

    def open(self, position: str | None = None, *, seek: Seek = "invocation") -> JournalStart: ...

    def drain(self, budget_seconds: float, handler: Handler) -> DrainResult: ...

    def position(self) -> str | None: ...

    def fileno(self) -> int: ...

    def stale_check(self) -> bool: ...

    def close(self) -> None: ...


def log_reader(
    selection: Selection, wanted: Wanted, *, own_pid: int | None, writers_from: Callable[[], float]
) -> LogReader:
    """A reader of the selection. Only a journal's entries tell who wrote them."""
    if isinstance(selection, LogFileSelection):
        return LogTail(selection, wanted)
    if isinstance(selection, StdinSelection):
        return StdinReader(wanted)
    return JournalReader(selection, wanted, own_pid=own_pid, writers_from=writers_from)
