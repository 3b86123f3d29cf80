"""Parts of a journal, read by several processes: the same as one process would find."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from kvexporter.diagnosing.books import Books
from kvexporter.diagnosing.logbook import ServerStory
from kvexporter.diagnosing.spans import Part, read_parts
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.journal_span import OutOfOrderError, Span
from tests.support.diagnosing import recorded, without_times
from tests.support.journal_entries import START, entry
from tests.support.journal_files import journal_from_export

UNIT = "llama-server.service"
RUNS = ("b11434/uneven_overflow", "b8635/prompt_too_long", "b5541/idle_purge", "b8635/unified_overflow")


def write(folder: Path, lines: Sequence[bytes], *, step: float = 0.01, turned_back: float = 0.0) -> JournalSelection:
    """A journal with one line every `step` seconds; in its middle the clock is turned back."""
    parts = []
    for number, line in enumerate(lines):
        at = number * step - (turned_back if number > len(lines) // 2 else 0.0)
        parts.append(entry(line, at, _SYSTEMD_UNIT=UNIT, _PID="7"))
    journal_from_export(b"".join(parts), folder)
    return JournalSelection(unit=UNIT, directory=str(folder))


def told(parts: Sequence[Part]) -> ServerStory:
    books = Books("test", UNIT, 100)
    for part in parts:
        if part.sifted:
            books.sifted()
        for each in part.entries:
            books.entry(each)
        books.read_to(part.newest)
    (story,) = books.stories()
    return story


@pytest.fixture
def lines() -> list[bytes]:
    return [line for _ in range(6) for name in RUNS for line in recorded(name)]


@pytest.mark.parametrize("step", [0.01, 0.000001])
def test_several_processes_find_what_one_does(tmp_path: Path, lines: list[bytes], step: float) -> None:
    selection = write(tmp_path / "journal", lines, step=step)

    alone = list(read_parts(selection, Span(), 1))
    together = list(read_parts(selection, Span(), 3))

    assert len(together) > 10
    assert all(part.sifted for part in together)
    assert not any(part.sifted for part in alone)
    assert without_times(told(together)) == without_times(told(alone))
    assert told(together).clients == told(alone).clients
    assert together[-1].share == 1.0
    assert alone[-1].share == pytest.approx(1.0, abs=0.001)


@pytest.mark.parametrize("processes", [1, 3])
def test_a_span_has_the_entries_of_its_time_and_no_others(tmp_path: Path, lines: list[bytes], processes: int) -> None:
    released = b"slot      release: id  0 | task %d | stop processing: n_tokens = 10, truncated = 0"
    selection = write(tmp_path / "journal", [released % number for number in range(2000)], step=1.0)

    parts = list(read_parts(selection, Span(START + 500_000_000, START + 1_600_000_000), processes))

    times = [each.at for part in parts for each in part.entries]
    assert times == [START / 1e6 + second for second in range(500, 1600)]


def test_entries_of_one_moment_are_read_once(tmp_path: Path) -> None:
    released = b"slot      release: id  0 | task %d | stop processing: n_tokens = 10, truncated = 0"
    selection = write(tmp_path / "journal", [released % number for number in range(900)], step=0.0)

    assert told(list(read_parts(selection, Span(), 3))).requests_ended == 900


def test_a_span_without_entries_is_empty(tmp_path: Path, lines: list[bytes]) -> None:
    selection = write(tmp_path / "journal", lines[:50])
    assert list(read_parts(selection, Span(START + 2_000_000_000), 3)) == []
    assert list(read_parts(selection, Span(None, START), 3)) == []


@pytest.mark.parametrize("back", [3.0, 15.0, 40.0])
def test_a_clock_that_was_set_back_is_noticed_by_who_reads_parts(
    tmp_path: Path, lines: list[bytes], back: float
) -> None:
    """Parts by time would leave out entries, or take them twice."""
    selection = write(tmp_path / "journal", lines, turned_back=back)
    alone = told(list(read_parts(selection, Span(), 1)))
    assert alone.counters.error_lines == sum(b"Context size has been exceeded" in line for line in lines)
    try:
        together = told(list(read_parts(selection, Span(), 2)))
    except OutOfOrderError:
        return
    assert without_times(together) == without_times(alone)


def test_a_span_is_cut_without_losing_a_moment() -> None:
    parts = Span(None, 2_000_000).cut(10, 1_000_003, 7)
    assert len(parts) == 7
    assert (parts[0].since, parts[-1].until) == (None, 2_000_000)
    assert all(before.until == after.since for before, after in pairwise(parts))


def test_a_span_of_a_moment_is_not_cut() -> None:
    assert Span().cut(5, 6, 3) == [Span()]
    assert Span().cut(9, 5, 3) == [Span()]
