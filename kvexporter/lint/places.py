"""Where a character stands: every text that is checked gets a range of numbers, so that a value keeps its origin."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A position as people count it: lines and columns from 1."""

    file: str
    line: int
    column: int


class Source:
    """One text, with the number of its first character."""

    def __init__(self, name: str, text: str, base: int) -> None:
        self.name = name
        self.text = text
        self.base = base
        self._starts = [0]
        self._starts += [at + 1 for at, character in enumerate(text) if character == "\n"]

    def place(self, offset: int) -> Place:
        line = bisect_right(self._starts, offset)
        return Place(self.name, line, offset - self._starts[line - 1] + 1)

    def line(self, offset: int) -> tuple[int, str]:
        """Where the line around this offset starts, and the line without its end."""
        start = self._starts[bisect_right(self._starts, offset) - 1]
        end = self.text.find("\n", start)
        return start, self.text[start : len(self.text) if end < 0 else end].rstrip("\r")

    def whole(self) -> Traced:
        return Traced(self.text, range(self.base, self.base + len(self.text)))


@dataclass(frozen=True, slots=True)
class Traced:
    """A text each of whose characters knows where it was written."""

    text: str
    marks: Sequence[int]

    def cut(self, start: int, end: int) -> Traced:
        return Traced(self.text[start:end], self.marks[start:end])


NOTHING = Traced("", ())


class Book:
    """All texts of one check."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._bases: list[int] = []
        self._next = 0

    def add(self, name: str, text: str) -> Source:
        """Take a text in; its name is shown in findings."""
        source = Source(name, text, self._next)
        self._sources.append(source)
        self._bases.append(self._next)
        # One more, so that the end of a text is a place in it.
        self._next += len(text) + 1
        return source

    def source(self, mark: int) -> Source:
        return self._sources[bisect_right(self._bases, mark) - 1]

    def place(self, mark: int) -> Place:
        source = self.source(mark)
        return source.place(mark - source.base)

    def line(self, mark: int) -> str:
        """The line of the text that the mark is in."""
        source = self.source(mark)
        return source.line(mark - source.base)[1]

    def replaced(self, start: int, end: int, text: str) -> str:
        """The line with what stands from `start` to `end` replaced; empty if that is not on one line."""
        source = self.source(start)
        line_start, line = source.line(start - source.base)
        first, last = start - source.base - line_start, end - source.base - line_start
        if not 0 <= first <= last <= len(line):
            return ""
        return line[:first] + text + line[last:]

    def removed(self, start: int, end: int) -> str:
        """The line without what stands from `start` to `end` and the white space before it."""
        source = self.source(start)
        line_start, line = source.line(start - source.base)
        first, last = start - source.base - line_start, end - source.base - line_start
        if not 0 <= first <= last <= len(line):
            return ""
        kept = line[:first]
        rest = line[last:]
        if kept.endswith((" ", "\t")) and (not rest or rest[0] in " \t\"'"):
            kept = kept.rstrip(" \t") if kept.strip() else kept
        elif rest[:1] in (" ", "\t"):
            rest = rest.lstrip(" \t")
        return kept + rest
