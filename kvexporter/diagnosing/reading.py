"""What is to be diagnosed, read from wherever it is: the host's journal, copied journal files, an export, a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kvexporter.diagnosing.books import Books
from kvexporter.diagnosing.logbook import ServerStory
from kvexporter.diagnosing.sieve import Sieve
from kvexporter.diagnosing.spans import read_parts
from kvexporter.facts import JournalEntry, Reading
from kvexporter.llama.log import parse_line, parse_lines
from kvexporter.replay_input import NothingFoundError, check_log, find_writers, log_entries
from kvexporter.sources.journal_export import ExportReader
from kvexporter.sources.journal_health import journal_health
from kvexporter.sources.journal_library import JournalUnavailableError
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.journal_span import OutOfOrderError, Span, SpanReader
from kvexporter.sources.journal_units import find_units
from kvexporter.sources.recorded_file import open_recorded

NAME = "llama-server"
"""What a server is called where nothing tells its name."""

Progress = Callable[[float | None], None]
"""Is told how much has been read, 0 to 1; None: that is not known yet."""

_TELL_EVERY = 2_000
"""Entries of a file."""


@dataclass(frozen=True, slots=True)
class LogInput:
    """What to read. At most one of `journal`, `journal_export` and `log_file`; without one, the host's own journal."""

    unit: str | None = None
    journal: Path | None = None
    """A folder with journal files."""
    journal_export: Path | None = None
    log_file: Path | None = None
    since: float | None = None
    """Unix seconds; None: from the start."""
    until: float | None = None
    """The first moment that is not looked at."""
    last: int = 20
    """Incidents that are kept whole, the latest ones."""


def read_stories(source: LogInput, progress: Progress = lambda share: None) -> list[ServerStory]:
    """Read it; give what each server's log told.

    NothingFoundError when no line is a llama-server's; RecordingError, JournalUnavailableError and OSError when it
    cannot be read.
    """
    if source.log_file is not None:
        return _read_log(source.log_file, source, progress)
    if source.journal_export is not None:
        return _read_export(source.journal_export, source, progress)
    return _read_journals(source, progress)


# ---- files ---------------------------------------------------------------------------------------------------------


def _read_log(path: Path, source: LogInput, progress: Progress) -> list[ServerStory]:
    with open_recorded(path) as stream:
        check_log(path, stream, alone=True)
        books, sieve = Books(NAME, None, source.last), Sieve(thorough=True)
        for entry in _told(log_entries(stream), stream, progress):
            reading = sieve(entry.message)
            if reading is not None:
                books.entry(_with_reading(entry, reading))
        return books.stories(since_start=True)


def _read_export(path: Path, source: LogInput, progress: Progress) -> list[ServerStory]:
    progress(None)
    with open_recorded(path) as stream:
        writers = find_writers(path, stream, alone=True)
        books = {writer: Books(writer.name, writer.unit, source.last) for writer in writers.writers}
        sieve = Sieve(thorough=True)
        reader = ExportReader(stream)
        for entry in _told(iter(reader), stream, progress):
            writer = writers.of(entry)
            if writer is not None:
                _take_exported(books[writer], sieve, entry, source)
        for each in books.values():
            each.read_to(None, gap=reader.malformed > 0)
    stories = [story for each in books.values() for story in each.stories()]
    if not stories:
        raise NothingFoundError(f"{path}: no llama-server line found in that time")
    return stories


def _take_exported(books: Books, sieve: Sieve, entry: JournalEntry, source: LogInput) -> None:
    if source.until is not None and entry.at >= source.until:
        return
    if entry.unit_event is None:
        entry = _with_reading(entry, parse_line(entry.message) if entry.continued else sieve(entry.message))
    if source.since is not None and entry.at < source.since:
        books.preface([entry])
        return
    books.read_to(entry.at)
    books.entry(entry)


def _told(entries: Iterator[JournalEntry], stream: BinaryIO, progress: Progress) -> Iterator[JournalEntry]:
    """The same entries, while progress is told."""
    size = _size(stream)
    for number, entry in enumerate(entries):
        if number % _TELL_EVERY == 0:
            progress(stream.tell() / size if size else None)
        yield entry
    progress(1.0)


def _size(stream: BinaryIO) -> int:
    here = stream.tell()
    size = stream.seek(0, 2)
    stream.seek(here)
    return size


def _with_reading(entry: JournalEntry, reading: Reading | None) -> JournalEntry:
    """The entry with what was made of its message."""
    return JournalEntry(
        entry.at, entry.message, entry.pid, entry.invocation, entry.unit_event, entry.continued, reading, entry.unit
    )


# ---- journals ------------------------------------------------------------------------------------------------------


def _read_journals(source: LogInput, progress: Progress) -> list[ServerStory]:
    directory = str(source.journal) if source.journal is not None else None
    where = directory or "this host's journal"
    if source.unit is not None:
        selection = JournalSelection(unit=source.unit, directory=directory)
        named = [(str(selection.about), selection)]
    else:
        progress(None)
        _demand_readable(JournalSelection(matches=({"_TRANSPORT": "stdout"},), directory=directory))
        named = find_units(_says_something, directory)
        if not named and directory is not None:
            named = [(NAME, JournalSelection(directory=directory))]
        if not named:
            raise NothingFoundError(
                f"{where}: no unit or container has lines of a llama-server: name one with --unit, or give the log "
                "that it writes with --log-file"
            )
    stories: list[ServerStory] = []
    for number, (name, selection) in enumerate(named):
        stories += _read_journal(name.removesuffix(".service"), selection, source, _part(progress, number, len(named)))
    if not stories:
        raise NothingFoundError(_why_nothing(named[0][1], source, where))
    return stories


def _read_journal(name: str, selection: JournalSelection, source: LogInput, progress: Progress) -> list[ServerStory]:
    _demand_readable(selection)
    try:
        return _read_with(name, selection, source, progress, None)
    except (OutOfOrderError, BrokenProcessPool):
        return _read_with(name, selection, source, progress, 1)


def _read_with(
    name: str, selection: JournalSelection, source: LogInput, progress: Progress, processes: int | None
) -> list[ServerStory]:
    books = Books(name, selection.about, source.last)
    span = Span(_microseconds(source.since), _microseconds(source.until))
    if span.since is not None:
        with SpanReader(selection) as reader:
            books.preface(reader.run_before(span.since, parse_lines))
    for part in read_parts(selection, span, processes):
        if part.sifted:
            books.sifted()
        for entry in part.entries:
            books.entry(entry)
        books.read_to(part.newest, gap=part.gap or part.malformed > 0)
        progress(part.share)
    return books.stories()


def _demand_readable(selection: JournalSelection) -> None:
    health = journal_health(selection)
    if health.problems:
        raise JournalUnavailableError("; ".join(health.problems))


def _why_nothing(selection: JournalSelection, source: LogInput, where: str) -> str:
    what = selection.about or "its entries"
    when = " in that time" if source.since is not None or source.until is not None else ""
    health = journal_health(selection)
    if health.has_entries:
        return f"{where}: no llama-server line found in {what}{when}: is it the right unit, and does it log there?"
    return f"{where}: " + ("; ".join(health.notes) or f"there are no entries of {what}")


def _part(progress: Progress, number: int, count: int) -> Progress:
    return lambda share: progress(None if share is None else (number + share) / count)


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


def _says_something(message: bytes) -> bool:
    line = parse_line(message)
    return line is not None and line.event is not None
