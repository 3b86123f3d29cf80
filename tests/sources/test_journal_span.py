"""Parts of a journal that are read once, past what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from kvexporter.sources.journal_library import LowLevelReader, open_journal
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.journal_span import Span, SpanReader
from tests.support.each import each
from tests.support.journal_entries import START, entry
from tests.support.journal_files import journal_from_export


class Damaged:
    """A real reader that cannot go to entries between two times (seconds after START)."""

    def __init__(self, real: LowLevelReader, first: float, last: float) -> None:
        self._real = real
        self._first, self._last = START / 1e6 + first, START / 1e6 + last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def _next(self) -> bool:
        if not self._real._next():
            return False
        if self._first <= self._real._get_realtime() / 1e6 <= self._last:
            self._real._previous()
            raise OSError(74, "Bad message")
        return True


def messages(folder: Path, span: Span, damage: tuple[float, float] | None = None) -> tuple[list[bytes], bool]:
    """Messages of a journal with an entry each second, and whether there is a gap in them."""
    journal_from_export(b"".join(entry(str(second), float(second)) for second in range(100)), folder)
    selection = JournalSelection(directory=str(folder))

    def opener(selection: JournalSelection) -> LowLevelReader:
        real = open_journal(selection)
        return real if damage is None else cast("LowLevelReader", Damaged(real, *damage))

    with SpanReader(selection, opener) as reader:
        chunks = list(reader.read(span, each(lambda message: True)))
    return [each.message for chunk in chunks for each in chunk.entries], any(chunk.gap for chunk in chunks)


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def test_a_sound_journal_is_read_from_end_to_end(tmp_path: Path) -> None:
    assert messages(tmp_path / "j", Span()) == (numbers(0, 100), False)


def test_the_end_of_a_span_is_not_in_it(tmp_path: Path) -> None:
    span = Span(START + 10_000_000, START + 20_000_000)
    assert messages(tmp_path / "j", span) == (numbers(10, 20), False)


def test_a_damaged_place_is_passed_over_and_told(tmp_path: Path) -> None:
    read, gap = messages(tmp_path / "j", Span(), (40.0, 44.0))
    assert gap
    assert read[:40] == numbers(0, 40)
    assert read[-40:] == numbers(60, 100)  # what lies right behind it may be lost with it
    assert len(set(read)) == len(read)


def test_a_journal_that_is_damaged_up_to_its_end_is_read_up_to_there(tmp_path: Path) -> None:
    assert messages(tmp_path / "j", Span(), (40.0, 1e6)) == (numbers(0, 40), True)
