"""Whether a log can be read, whatever its kind, and if not, why and what to do."""

from __future__ import annotations

from collections.abc import Callable

from kvexporter.sources.journal_health import JournalHealth, journal_health
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.log_access import file_problem
from kvexporter.sources.log_content import LogContent
from kvexporter.sources.log_lines import LineForms
from kvexporter.sources.log_selection import LogFileSelection, Selection, StdinSelection

_JUST_NOW, _LONG_AGO = 2.0, 86_400.0
LOOK_BYTES = 1 << 20
"""Of the beginning and of the end of a file that are looked at for lines of a server."""


def log_health(selection: Selection) -> JournalHealth:
    """Look whether a log can be read. Never raises."""
    if isinstance(selection, JournalSelection):
        return journal_health(selection)
    if isinstance(selection, StdinSelection):
        return JournalHealth(files=1)
    problem = file_problem(selection.path)
    return JournalHealth((problem,) if problem is not None else (), files=int(problem is None))


def look_into_file(selection: LogFileSelection, says: Callable[[bytes], object], now: float) -> JournalHealth:
    """Look also what is in a file: whether any line says something, and whether it grows. Never raises.

    `says`: whether a line is one of a server's. `now`: unix seconds.
    """
    problem = file_problem(selection.path)
    if problem is not None:
        return JournalHealth((problem,))
    try:
        with LogContent(selection.path) as content:
            status = content.status()
            lines = content.read(0, LOOK_BYTES).split(b"\n")
            if status.st_size > 2 * LOOK_BYTES:
                lines += content.read(status.st_size - LOOK_BYTES, LOOK_BYTES).split(b"\n")[1:]
    except OSError as error:
        return JournalHealth((f"{selection.path}: {error.strerror or error}",))
    if not status.st_size:
        return JournalHealth((), (f"{selection.path} is empty: nothing was logged yet",), 1, has_entries=False)
    forms = LineForms()
    recognised = any(says(forms.take(line.strip(b"\0\r"))[0]) for line in lines)
    notes = []
    if not recognised:
        notes.append(f"no line of llama-server was found in {selection.path}: is it what the server prints?")
    age = max(0.0, now - status.st_mtime)
    if age > _LONG_AGO:
        notes.append(f"{selection.path} was last written to {_span(age)} ago: does the server log elsewhere?")
    written = "written to just now" if age < _JUST_NOW else f"last written to {_span(age)} ago"
    return JournalHealth((), tuple(notes), 1, recognised, recognised or None, written)


def _span(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
