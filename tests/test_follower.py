"""Following a journal on the loop: where it starts is known first, and up to when it has been read is told truly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from kvexporter.facts import JournalEntry
from kvexporter.follower import JournalFollower
from kvexporter.reading.batch import Batch
from kvexporter.reading.link import ReadingLink
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.turns import Turns
from tests.support.journal_entries import entry
from tests.support.journal_files import journal_from_export

BACKLOG = 20_000


async def until(what: str, done: Callable[[], bool], deadline: float = 30.0) -> None:
    end = time.monotonic() + deadline
    while not done():
        assert time.monotonic() < end, f"waited {deadline:g} s for {what}"
        await asyncio.sleep(0.002)


def followed(directory: Path) -> tuple[JournalFollower, list[JournalEntry], ReadingLink]:
    entries: list[JournalEntry] = []
    selection = JournalSelection(unit="llama-server", directory=str(directory))
    link = ReadingLink(Turns())
    return JournalFollower(selection, link, entries.append), entries, link


def released(tokens: int) -> str:
    return f"slot release: id  0 | task 1 | stop processing: n_tokens = {tokens}, truncated = 0"


def sizes(entries: list[JournalEntry]) -> list[int]:
    return [entry.reading.event.tokens for entry in entries]  # type: ignore[union-attr]


def test_nothing_is_read_before_it_is_known_where_to_start(tmp_path: Path) -> None:
    journal_from_export(b"".join(entry(released(n), n) for n in range(10)), tmp_path)

    async def run() -> None:
        first, read, first_link = followed(tmp_path)
        first.start_after(None, 0, head=True)
        first.poke()
        await until("all lines", lambda: len(read) == 10)
        position = first.position
        first.close()
        await first_link.aclose()
        journal_from_export(entry(released(20), 20), tmp_path, "new.journal")

        second, read, second_link = followed(tmp_path)
        second.poke()
        await second.check()  # what the daemon calls now and then, maybe before the store is open
        await asyncio.sleep(0.05)
        assert read == []
        assert second.position is None
        second.start_after(position, 2)
        second.poke()
        await until("the new line", lambda: bool(read))
        assert sizes(read) == [20]
        assert second.gaps == 2
        second.close()
        await second_link.aclose()

    asyncio.run(run())


def test_a_journal_counts_as_read_only_when_its_end_was_reached(tmp_path: Path) -> None:
    journal_from_export(b"".join(entry(released(n), n / 100) for n in range(BACKLOG)), tmp_path)

    async def run() -> None:
        follower, read, link = followed(tmp_path)
        follower.start_after(None, 0, head=True)
        began = time.time()
        follower.poke()
        seen: list[tuple[float, int]] = []

        def ended() -> bool:
            seen.append((follower.read_until, len(read)))
            return follower.read_until > 0

        await until("the end", ended)
        follower.close()
        await link.aclose()
        assert {count for until_, count in seen if until_ == 0.0} - {0, BACKLOG}, "it was never seen underway"
        assert all(count == BACKLOG for until_, count in seen if until_ > 0)
        assert began <= seen[-1][0] <= time.time()

    asyncio.run(run())


def test_old_lines_of_an_idle_server_are_no_lag_once_all_is_read(tmp_path: Path) -> None:
    journal_from_export(entry(released(1), 1), tmp_path)  # long ago, and nothing since

    async def run() -> None:
        follower, read, link = followed(tmp_path)
        follower.start_after(None, 0, head=True)
        follower.poke()
        await until("the line", lambda: len(read) == 1)
        assert follower.lag is not None
        await until("word that nothing waits", lambda: follower.lag == 0.0)
        follower.close()
        await link.aclose()

    asyncio.run(run())


def test_a_failing_journal_whose_files_look_well_stays_failing_until_it_is_read_again(tmp_path: Path) -> None:
    journal_from_export(entry(released(1), 1), tmp_path)

    async def run() -> None:
        follower, _, link = followed(tmp_path)
        link.pace(600.0)  # it says no more by itself
        follower.start_after(None, 0, head=True)
        follower.poke()
        await until("the end", lambda: follower.read_until > 0)
        follower.batch(Batch(position=follower.position, failure="reading failed"), more=False)
        await follower.check()
        assert (follower.status.success, follower.status.reason) == (False, "reading failed")
        follower.batch(Batch(position=follower.position, complete_at=time.time()), more=False)
        assert follower.status.success
        follower.close()
        await link.aclose()

    asyncio.run(run())
