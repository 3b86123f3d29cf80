"""What is replayed, looked at before it is played: whether it is what it is said to be, and which servers wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from kvexporter.export_writers import MOST_WRITERS, ExportWriters, TooManyWritersError
from kvexporter.facts import JournalEntry
from kvexporter.incident_words import counted
from kvexporter.llama.log import parse_line
from kvexporter.quoted_paste import is_quoted, without_quote
from kvexporter.sources.journal_export import read_export
from kvexporter.sources.log_file import read_log_file
from kvexporter.sources.recorded_file import Form, form_of
from kvexporter.sources.recording import RecordingError

_UPTIME = re.compile(rb"(?:^|[ \x1b\]m])(\d+)\.(\d\d)\.(\d\d\d)\.(\d\d\d) (?:\x1b\[[0-9;]*m)?[IWED] ")


_SAMPLE = 1 << 20
"""Bytes of a log's beginning that tell whether it was quoted."""


class NothingFoundError(RecordingError):
    """A recording can be read, and no line in it is a llama-server's."""


_AS_JSON = "this is JSON of journalctl: write it with `journalctl -u UNIT -o export` and give that as --journal-export"
_AS_JOURNAL = "this is a journal file: give what `journalctl --file FILE -u UNIT -o export` writes as --journal-export"

_NO_EXPORT: Mapping[Form, str] = {
    "empty": "it is empty",
    "json": _AS_JSON,
    "journal file": _AS_JOURNAL,
    "text": "this is not the journal export format: is it a plain log? Then give it as --log-file",
}


def find_writers(path: Path, stream: BinaryIO, *, alone: bool) -> ExportWriters:
    """The servers of an export, which is read once for that. `alone`: there are no polls that could tell anything."""
    form = form_of(stream)
    try:
        writers = ExportWriters(read_export(stream))
    except TooManyWritersError:
        raise RecordingError(
            f"{_shown(path)}: lines of more than {MOST_WRITERS} servers: choose one with journalctl -u UNIT"
        ) from None
    stream.seek(0)
    if not writers.writers and alone:
        why = _NO_EXPORT.get(form)
        if why is None or writers.entries:
            units = ", ".join(sorted(writers.units)[:5])
            of = f" of {units}{'…' if len(writers.units) > 5 else ''}" if units else ""
            entries = counted(writers.entries, "entry", "entries")
            why = f"{entries}{of}: is it the right unit, and does it log to the journal?"
        raise NothingFoundError(f"{_shown(path)}: no llama-server line found: {why}")
    return writers


def check_log(path: Path, stream: BinaryIO, *, alone: bool) -> None:
    """Refuse what is no plain log, or says nothing and has nothing beside it that could."""
    form = form_of(stream)
    if form == "export":
        raise NothingFoundError(f"{_shown(path)}: this is the journal export format: give it as --journal-export")
    if form == "json":
        raise NothingFoundError(f"{_shown(path)}: {_AS_JSON}")
    if form == "journal file":
        raise NothingFoundError(f"{_shown(path)}: {_AS_JOURNAL}")
    if alone and all(parse_line(line) is None for line in _lines(stream)):
        why = "it is empty" if form == "empty" else "is it what the server printed?"
        raise NothingFoundError(f"{_shown(path)}: no llama-server line found: {why}")
    stream.seek(0)


def log_entries(stream: BinaryIO) -> Iterator[JournalEntry]:
    """Lines of a bare log file. Their own uptime is their time; lines without one have that of the line before."""
    at = 0.0
    for line in _lines(stream):
        found = _UPTIME.search(line[:200])
        if found is not None:
            minutes, seconds, millis, micros = (int(part) for part in found.groups())
            at = max(at, minutes * 60 + seconds + millis / 1e3 + micros / 1e6)
        yield JournalEntry(at=at, message=line)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a stream that is at its start; those of a log that was quoted as they were before."""
    sample = stream.read(_SAMPLE).splitlines()
    stream.seek(0)
    lines = read_log_file(stream)
    return map(without_quote, lines) if is_quoted(sample) else lines


def _shown(path: Path) -> str:
    return "standard input" if str(path) == "-" else str(path)
