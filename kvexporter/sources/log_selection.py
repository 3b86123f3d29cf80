"""Which log is read: entries of a journal, a file that grows, or standard input."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvexporter.sources.journal_selection import JournalSelection

_FILE, _STDIN = "log_file", "stdin"


@dataclass(frozen=True, slots=True)
class LogFileSelection:
    """A file that one server's log is appended to. ValueError when the path is not absolute."""

    path: str

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or "\0" in self.path:
            raise ValueError(f"expected an absolute path of a log file, found {self.path!r}")

    @property
    def folder(self) -> str:
        """Where the file and its rotated predecessors are."""
        return str(Path(self.path).parent)

    def __str__(self) -> str:
        return f"log file {self.path}"


@dataclass(frozen=True, slots=True)
class StdinSelection:
    """What is piped into the exporter's standard input."""

    def __str__(self) -> str:
        return "standard input"


Selection = JournalSelection | LogFileSelection | StdinSelection


def described(selection: Selection) -> str:
    """What is read, for messages."""
    return f"journal of {selection}" if isinstance(selection, JournalSelection) else str(selection)


def pack_selection(selection: Selection) -> list[tuple[str, Any]]:
    """Give a selection as plain values."""
    if isinstance(selection, LogFileSelection):
        return [(_FILE, selection.path)]
    if isinstance(selection, StdinSelection):
        return [(_STDIN, True)]
    fields = {**asdict(selection), "matches": [list(group.items()) for group in selection.matches]}
    return list(fields.items())


def unpack_selection(values: Iterable[tuple[str, Any]]) -> Selection:
    """The selection of such values, which this very program has packed."""
    fields = dict(values)
    if _FILE in fields:
        return LogFileSelection(fields[_FILE])
    if _STDIN in fields:
        return StdinSelection()
    return JournalSelection(**{**fields, "matches": tuple(dict(group) for group in fields["matches"])})


def stored_fields(selection: Selection) -> dict[str, Any]:
    """What names a log in the store."""
    if isinstance(selection, JournalSelection):
        return {name: value for name, value in asdict(selection).items() if value}
    return dict(pack_selection(selection))


def selection_from_stored(fields: dict[str, Any]) -> Selection:
    """The log that such fields name. TypeError or ValueError where they name none."""
    if _FILE in fields:
        return LogFileSelection(str(fields[_FILE]))
    if _STDIN in fields:
        return StdinSelection()
    return JournalSelection(**{**fields, "matches": tuple(fields.get("matches", ()))})
