"""Log files and standard input are read by the reading process as journals are; its death loses no line of a file."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvexporter.facts import JournalEntry
from kvexporter.follower import JournalFollower
from kvexporter.reading.link import ReadingLink
from kvexporter.sources.log_selection import LogFileSelection, Selection, StdinSelection
from kvexporter.turns import Turns
from tests.support.asking import run

LINES = 60_000


def released(tokens: int) -> bytes:
    return b"slot release: id  0 | task 1 | stop processing: n_tokens = %d, truncated = 0\n" % tokens


class Following:
    """A follower of a log, and what it was told."""

    def __init__(self, selection: Selection) -> None:
        self.link = ReadingLink(Turns(), stdin=isinstance(selection, StdinSelection))
        self.entries: list[JournalEntry] = []
        self.follower = JournalFollower(selection, self.link, self.entries.append)
        self.follower.start_after(None, 0)
        self.link.pace(0.1)

    @property
    def tokens(self) -> list[int]:
        return [found.reading.event.tokens for found in self.entries]  # type: ignore[union-attr]

    def kill(self) -> None:
        assert self.link.pid is not None
        os.kill(self.link.pid, signal.SIGKILL)

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(50):
            while not done():
                self.follower.poke()
                await asyncio.sleep(0.002)


def following(selection: Selection, test: Callable[[Following], Awaitable[None]]) -> None:
    async def with_it() -> None:
        one = Following(selection)
        try:
            await test(one)
        finally:
            one.follower.close()
            await one.link.aclose()

    run(with_it())


def test_a_killed_reading_process_is_followed_by_another_which_goes_on_at_the_same_line(tmp_path: Path) -> None:
    path = tmp_path / "llama.log"
    path.write_bytes(b"".join(map(released, range(LINES))))

    async def test(one: Following) -> None:
        await one.until(lambda: 0 < len(one.entries) < LINES)
        one.kill()
        path.rename(path.with_name("llama.log.1"))
        path.write_bytes(released(LINES))
        await one.until(lambda: len(one.entries) > LINES)
        assert one.tokens == list(range(LINES + 1))
        assert one.follower.gaps == 0

    following(LogFileSelection(str(path)), test)


def test_a_file_that_is_missing_is_said_once_and_read_when_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "llama.log"

    async def test(one: Following) -> None:
        await one.until(lambda: "there is no file" in str(one.follower.status.reason))
        assert one.follower.caught_up
        for _ in range(3):
            await one.follower.check()
        path.write_bytes(released(7))
        await one.until(lambda: one.tokens == [7])
        await one.follower.check()
        assert one.follower.status.success

    following(LogFileSelection(str(path)), test)
    assert caplog.text.count("there is no file") == 1


@contextmanager
def piped() -> Iterator[int]:
    """Standard input is a pipe meanwhile; its writing end."""
    source, sink = os.pipe()
    before = os.dup(0)
    os.dup2(source, 0)
    os.close(source)
    try:
        yield sink
    finally:
        os.dup2(before, 0)
        os.close(before)


def test_standard_input_is_read_as_it_comes_and_its_end_is_said() -> None:
    async def test(one: Following) -> None:
        os.write(sink, released(1))
        await one.until(lambda: one.tokens == [1])
        os.write(sink, released(2) + b"half")
        await one.until(lambda: one.tokens == [1, 2])
        assert one.follower.caught_up
        os.close(sink)
        await one.until(lambda: "standard input has ended" in str(one.follower.status.reason))
        await one.follower.check()
        assert "standard input has ended" in str(one.follower.status.reason)

    with piped() as sink:
        following(StdinSelection(), test)


def test_of_standard_input_what_a_killed_process_had_read_is_a_gap() -> None:
    async def test(one: Following) -> None:
        os.write(sink, released(1))
        await one.until(lambda: one.tokens == [1])
        one.kill()
        await one.until(lambda: not one.follower.status.success)
        os.write(sink, released(2))
        await one.until(lambda: one.tokens == [1, 2])
        assert one.follower.gaps == 1
        os.close(sink)

    with piped() as sink:
        following(StdinSelection(), test)
