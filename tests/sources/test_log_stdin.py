"""A log that is piped in: every line once, nothing waits, and the end is said."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kvexporter.facts import JournalEntry
from kvexporter.sources.drain import DrainResult
from kvexporter.sources.journal_library import JournalUnavailableError
from kvexporter.sources.log_lines import MAX_LINE
from kvexporter.sources.log_stdin import EMPTY, ENDED, StdinReader
from tests.support.each import each


class Piped:
    """A reader of a pipe and what it read."""

    def __init__(self) -> None:
        self.source, self.sink = os.pipe()
        self.entries: list[JournalEntry] = []
        self.reader = StdinReader(each(lambda text: True), self.source, clock=lambda: 1000.0)
        self.reader.open()

    def read(self) -> DrainResult:
        return self.reader.drain(10.0, self.entries.append)

    @property
    def lines(self) -> list[bytes]:
        return [entry.message for entry in self.entries]


@pytest.fixture
def piped() -> Iterator[Piped]:
    one = Piped()
    yield one
    os.close(one.source)


def test_lines_are_read_as_they_come_and_a_last_one_without_an_end_too(piped: Piped) -> None:
    assert piped.read().complete
    os.write(piped.sink, b"a\r\nb")
    assert piped.read().complete
    os.write(piped.sink, b"c\n2026-11-30T10:00:00Z d\ne")
    piped.read()
    os.close(piped.sink)
    result = piped.read()
    assert piped.lines == [b"a", b"bc", b"d", b"e"]
    assert (result.failure, result.more, result.complete) == (ENDED, False, False)
    # A time after now is none that a line can have.
    assert [entry.at for entry in piped.entries] == [1000.0] * 4
    with pytest.raises(JournalUnavailableError):
        piped.reader.fileno()
    assert piped.read().failure == ENDED


def test_a_line_that_is_too_long_is_cut(piped: Piped) -> None:
    for _ in range(5):
        os.write(piped.sink, b"x" * 50_000)
        piped.read()
    os.write(piped.sink, b"\nnext\n")
    piped.read()
    assert [len(line) for line in piped.lines if isinstance(line, bytes)] == [MAX_LINE, 4]
    os.close(piped.sink)


def test_nothing_piped_in_is_said(piped: Piped) -> None:
    os.close(piped.sink)
    assert piped.read().failure == EMPTY
    assert piped.reader.position() is None


def test_going_on_after_another_reader_is_a_gap(piped: Piped) -> None:
    os.write(piped.sink, b"a\n")
    piped.read()
    again = StdinReader(each(lambda _: True), piped.source)
    assert again.open(piped.reader.position()).kind == "gap"
    os.close(piped.sink)


def test_a_closed_descriptor_is_said() -> None:
    source, sink = os.pipe()
    os.close(sink)
    os.close(source)
    with pytest.raises(JournalUnavailableError, match="standard input is closed"):
        StdinReader(each(lambda _: True), source).open()
