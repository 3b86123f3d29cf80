"""Following a journal on the loop: where it starts is known first, and up to when it has been read is told truly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from kvexporter.facts import JournalEntry
from kvexporter.follower import JournalFollower
from kvexporter.sources.journal_selection import JournalSelection
from tests.support.journal_entries import entry
from tests.support.journal_files import journal_from_export

BACKLOG = 20_000


async def until(what: str, done: Callable[[], bool], deadline: float = 30.0) -> None:
    end = time.monotonic() + deadline
    while not done():
        assert time.monotonic() < end, f"waited {deadline:g} s for {what}"
        await asyncio.sleep(0.002)


def followed(directory: Path) -> tuple[JournalFollower, list[JournalEntry]]:
    entries: list[JournalEntry] = []
    selection = JournalSelection(unit="llama-server", directory=str(directory))
    return JournalFollower(selection, lambda message: message, entries.append), entries


def test_nothing_is_read_before_it_is_known_where_to_start(tmp_path: Path) -> None:
    journal_from_export(b"".join(entry(f"line {n}", n) for n in range(10)), tmp_path)

    async def run() -> None:
        first, read = followed(tmp_path)
        first.start_after(None, 0, head=True)
        first.poke()
        await until("all lines", lambda: len(read) == 10)
        position = first.position
        first.close()
        journal_from_export(entry("new", 20), tmp_path, "new.journal")

        second, read = followed(tmp_path)
        second.poke()
        await second.check()  # what the daemon calls now and then, maybe before the store is open
        await asyncio.sleep(0.05)
        assert read == []
        assert second.position is None
        second.start_after(position, 2)
        second.poke()
        await until("the new line", lambda: bool(read))
        assert [found.message for found in read] == [b"new"]
        assert second.gaps == 2
        second.close()

    asyncio.run(run())


def test_a_journal_counts_as_read_only_when_its_end_was_reached(tmp_path: Path) -> None:
    journal_from_export(b"".join(entry(f"line {n}", n / 100) for n in range(BACKLOG)), tmp_path)

    async def run() -> None:
        follower, read = followed(tmp_path)
        follower.start_after(None, 0, head=True)
        began = time.time()
        follower.poke()
        seen: list[tuple[float, int]] = []

        def ended() -> bool:
            seen.append((follower.read_until, len(read)))
            return follower.read_until > 0

        await until("the end", ended)
        follower.close()
        assert {count for until_, count in seen if until_ == 0.0} - {0, BACKLOG}, "it was never seen underway"
        assert all(count == BACKLOG for until_, count in seen if until_ > 0)
        assert began <= seen[-1][0] <= time.time()

    asyncio.run(run())
