"""What the reader does when libsystemd cannot go on: real journal files, with failures put between."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvexporter.facts import JournalEntry
from kvexporter.sources.drain import DrainResult
from kvexporter.sources.journal import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, JournalReader
from kvexporter.sources.journal_library import LowLevelReader, open_journal
from kvexporter.sources.journal_selection import JournalSelection
from tests.support.each import each
from tests.support.journal_entries import entry
from tests.support.journal_files import journal_from_export

Fails = Callable[[LowLevelReader], bool]


class FailingReader:
    """The real reader, whose step to the next entry fails where `fails` says so."""

    def __init__(self, real: LowLevelReader, fails: Fails) -> None:
        self._real = real
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def _next(self) -> bool:
        there = self._real._next()
        if self._fails(self._real):
            if there:
                self._real._previous()  # as libsystemd: a step that fails leaves the position where it was
            raise OSError(errno.EBADMSG, "Bad message")
        return there


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Followed:
    """A reader over the given journal whose steps may fail."""

    def __init__(self, directory: Path, fails: Fails) -> None:
        self.clock = Clock()
        self.entries: list[JournalEntry] = []
        self.results: list[DrainResult] = []

        def opener(selection: JournalSelection) -> LowLevelReader:
            return FailingReader(open_journal(selection), fails)

        selection = JournalSelection(unit="llama-server", directory=str(directory))
        self.reader = JournalReader(selection, each(lambda _: True), opener=opener, clock=self.clock)

    def drain(self) -> DrainResult:
        result = self.reader.drain(1.0, self.entries.append)
        self.results.append(result)
        return result

    @property
    def messages(self) -> list[str]:
        return [entry.message.decode() for entry in self.entries]


@pytest.fixture
def hundred(tmp_path: Path) -> Path:
    journal_from_export(b"".join(entry(f"line {n}", n) for n in range(100)), tmp_path)
    return tmp_path


LINES = [f"line {n}" for n in range(100)]


def test_after_a_failure_reading_goes_on_at_the_same_place(hundred: Path) -> None:
    failures = iter([False] * 40 + [True] + [False] * 20 + [True])
    followed = Followed(hundred, lambda _: next(failures, False))
    followed.reader.open(seek="head")
    result = followed.drain()
    followed.reader.close()
    assert followed.messages == LINES
    assert result.reopened
    assert not result.gap
    assert result.failure is None


def test_a_failure_before_the_first_entry_starts_where_reading_was_to_start(hundred: Path) -> None:
    failures = iter([True])
    followed = Followed(hundred, lambda _: next(failures, False))
    followed.reader.open(seek="head")
    followed.drain()
    followed.reader.close()
    assert followed.messages == LINES


def test_an_entry_that_always_fails_is_passed_over_and_the_gap_is_said(hundred: Path) -> None:
    def fails(real: LowLevelReader) -> bool:
        try:
            return real._get("MESSAGE") == b"line 40"
        except OSError:
            return False

    followed = Followed(hundred, fails)
    followed.reader.open(seek="head")
    result = followed.drain()
    followed.reader.close()
    assert result.gap
    assert followed.messages[:40] == LINES[:40]
    assert "line 40" not in followed.messages
    assert followed.messages[-1] == "line 99"
    assert len(set(followed.messages)) == len(followed.messages)


def test_when_nothing_can_be_read_it_is_tried_again_at_growing_intervals(hundred: Path) -> None:
    broken = [True]
    followed = Followed(hundred, lambda _: broken[0])
    followed.reader.open(seek="head")
    waits = []
    for _ in range(10):
        failed = followed.drain()
        assert failed.failure is not None
        assert not failed.more
        began = followed.clock.now
        while followed.drain().failure == "waiting before the next attempt":
            followed.clock.now += 0.5
        waits.append(followed.clock.now - began)
    assert FIRST_RETRY_SECONDS <= waits[0] < 10 * FIRST_RETRY_SECONDS
    assert waits[-1] == LAST_RETRY_SECONDS
    assert waits == sorted(waits)
    broken[0] = False
    followed.clock.now += LAST_RETRY_SECONDS
    result = followed.drain()
    followed.reader.close()
    assert result.reopened
    assert followed.messages == LINES


def test_a_folder_that_goes_away_and_comes_back_is_read_on(tmp_path: Path) -> None:
    broken = [False]
    folder, away = tmp_path / "journal", tmp_path / "away"
    journal_from_export(b"".join(entry(f"line {n}", n) for n in range(50)), folder, "a.journal")
    followed = Followed(folder, lambda _: broken[0])
    followed.reader.open(seek="head")
    followed.drain()
    folder.rename(away)
    broken[0] = True
    assert followed.drain().failure is not None
    broken[0] = False
    followed.clock.now += LAST_RETRY_SECONDS
    failed = followed.drain().failure
    assert failed is not None
    assert "no journal folder" in failed
    away.rename(folder)
    journal_from_export(b"".join(entry(f"line {n}", n) for n in range(50, 100)), folder, "b.journal")
    followed.clock.now += LAST_RETRY_SECONDS
    followed.drain()
    followed.reader.close()
    assert followed.messages == LINES


def test_a_handlers_error_is_passed_on(hundred: Path) -> None:
    followed = Followed(hundred, lambda _: False)
    followed.reader.open(seek="head")

    def handler(_: JournalEntry) -> None:
        raise RuntimeError("handler")

    with pytest.raises(RuntimeError, match="handler"):
        followed.reader.drain(1.0, handler)
    followed.reader.close()
