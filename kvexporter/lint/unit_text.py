"""The text of systemd units: sections, keys and values, as systemd joins and trims them."""

from __future__ import annotations

from dataclasses import dataclass

from kvexporter.lint.places import Source, Traced

_WHITE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """One `Key=value` of a section."""

    section: str
    key: str
    value: Traced
    start: int


def read_unit(source: Source) -> list[Entry]:
    """The entries of a unit file or drop-in, in its order. What is none is passed over, as systemd does."""
    entries: list[Entry] = []
    section = ""
    for line in _logical_lines(source):
        text = line.text
        first = len(text) - len(text.lstrip(_WHITE))
        stripped = text.strip(_WHITE)
        if stripped.startswith("[") and stripped.endswith("]"):
            section = stripped[1:-1]
            continue
        key, equals, _ = stripped.partition("=")
        if not equals:
            continue
        begin = first + len(key) + 1
        while begin < len(text) and text[begin] in _WHITE:
            begin += 1
        end = max(len(text.rstrip(_WHITE)), begin)
        entries.append(Entry(section, key.rstrip(_WHITE), line.cut(begin, end), line.marks[first]))
    return entries


def _logical_lines(source: Source) -> list[Traced]:
    """Lines with what continues them after a backslash at the end. Comments between do not end them."""
    lines: list[Traced] = []
    text: list[str] = []
    marks: list[int] = []
    at = 1 if source.text.startswith("\ufeff") else 0
    for line in source.text[at:].split("\n"):
        start, at = at, at + len(line) + 1
        if line.lstrip(_WHITE)[:1] in ("#", ";"):
            continue
        line = line.rstrip("\r")
        backslashes = len(line) - len(line.rstrip("\\"))
        goes_on = backslashes % 2 == 1
        text.append(line[:-1] + " " if goes_on else line)
        marks.extend(range(source.base + start, source.base + start + len(line)))
        if not goes_on:
            if "".join(text).strip(_WHITE):
                lines.append(Traced("".join(text), marks))
            text, marks = [], []
    if "".join(text).strip(_WHITE):
        lines.append(Traced("".join(text), marks))
    return lines
