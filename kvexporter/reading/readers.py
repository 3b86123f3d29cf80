"""Who reads a log, by its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kvexporter.llama.log import parse_lines
from kvexporter.sources.drain import DrainResult, Handler, Seek
from kvexporter.sources.journal_position import JournalStart
from kvexporter.sources.log_selection import LogFileSelection, Selection, StdinSelection


class LogReader(Protocol):
    """Reads one log, oldest entry first; see JournalReader, whose errors are those of all."""

    def open(self, position: str | None = None, *, seek: Seek = "invocation") -> JournalStart: ...

    def drain(self, budget_seconds: float, handler: Handler) -> DrainResult: ...

    def position(self) -> str | None: ...

    def fileno(self) -> int: ...

    def announces(self) -> bool: ...

    def stale_check(self) -> bool: ...

    def close(self) -> None: ...


def log_reader(selection: Selection, *, own_pid: int | None, writers_from: Callable[[], float]) -> LogReader:
    """A reader of what llama-server says in the selection. Only a journal's entries tell who wrote them."""
    # A process reads one kind, and begins the sooner for not loading the others.
    if isinstance(selection, LogFileSelection):
        from kvexporter.sources.log_tail import LogTail

        return LogTail(selection, parse_lines)
    if isinstance(selection, StdinSelection):
        from kvexporter.sources.log_stdin import StdinReader

        return StdinReader(parse_lines)
    from kvexporter.sources.journal import JournalReader

    return JournalReader(selection, parse_lines, own_pid=own_pid, writers_from=writers_from)
