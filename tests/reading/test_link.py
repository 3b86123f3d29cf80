"""The process that reads journals may hang, die or be killed: counts stay exact, and the daemon goes on."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kvexporter.facts import JournalEntry
from kvexporter.follower import JournalFollower
from kvexporter.reading import link as link_module
from kvexporter.reading.link import ReadingLink
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.log_selection import LogFileSelection, Selection
from kvexporter.turns import Turns
from tests.support.asking import run
from tests.support.hanging_disk import hanging_disk
from tests.support.journal_entries import entry
from tests.support.journal_files import LiveJournalFile, journal_from_export

LINES = 30_000


class Following:
    """A follower of a log, and what it was told."""

    def __init__(self, selection: Selection) -> None:
        self.link = ReadingLink(Turns())
        self.entries: list[JournalEntry] = []
        self.follower = JournalFollower(selection, self.link, self.entries.append)
        self.follower.start_after(None, 0, head=True)
        self.follower.poke()

    @property
    def pid(self) -> int:
        process = self.link._process
        assert process is not None
        return process.pid

    @property
    def tokens(self) -> list[int]:
        return [found.reading.event.tokens for found in self.entries]  # type: ignore[union-attr]

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(50):
            while not done():
                self.follower.poke()
                await asyncio.sleep(0.002)


def released(tokens: int) -> str:
    return f"slot release: id  0 | task 1 | stop processing: n_tokens = {tokens}, truncated = 0"


def following(log: Path | Selection, test: Callable[[Following], Awaitable[None]]) -> None:
    """Run a test on a follower of the unit's entries in a journal folder, or of another log."""

    async def with_it() -> None:
        one = Following(JournalSelection(unit="llama-server", directory=str(log)) if isinstance(log, Path) else log)
        try:
            await test(one)
        finally:
            one.follower.close()
            await one.link.aclose()

    run(with_it())


@pytest.fixture
def backlog(tmp_path: Path) -> Path:
    journal_from_export(b"".join(entry(released(n), n / 100) for n in range(LINES)), tmp_path)
    return tmp_path


def test_a_reading_process_that_is_killed_is_followed_by_another_which_goes_on_where_it_was(backlog: Path) -> None:
    async def test(one: Following) -> None:
        await one.until(lambda: 0 < len(one.entries) < LINES)
        os.kill(one.pid, signal.SIGKILL)
        await one.until(lambda: not one.follower.status.success)
        assert "SIGKILL" in str(one.follower.status.reason)
        assert not one.follower.caught_up  # or half of the past would be shown as all of it
        await one.until(lambda: len(one.entries) >= LINES)
        await one.until(lambda: one.follower.caught_up)
        assert one.tokens == list(range(LINES))
        assert one.follower.gaps == 0
        await one.until(lambda: one.follower.status.success)

    following(backlog, test)


def test_a_journal_file_that_is_overwritten_in_place_does_not_end_the_daemon(backlog: Path) -> None:
    files = list(backlog.glob("*.journal"))

    async def test(one: Following) -> None:
        await one.until(lambda: one.follower.read_until > 0)
        (file,) = files
        os.truncate(file, 4096)  # what is mapped is gone: whoever looks at it is killed by SIGBUS
        file.touch()
        with LiveJournalFile(backlog, name="next.journal") as journal:
            journal.write(released(LINES))
            await one.until(lambda: LINES in one.tokens)
        assert one.tokens.count(LINES) == 1

    following(backlog, test)


def test_one_that_hangs_is_told_and_goes_on_when_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "SILENT_SECONDS", 0.2)

    async def test(one: Following) -> None:
        await one.until(lambda: one.follower.read_until > 0)
        os.kill(one.pid, signal.SIGSTOP)
        journal.write(released(5))
        await asyncio.sleep(0.4)
        await one.follower.check()
        assert "is the disk hanging?" in str(one.follower.status.reason)
        os.kill(one.pid, signal.SIGCONT)
        await one.until(lambda: one.tokens == [5])
        monkeypatch.setattr(link_module, "SILENT_SECONDS", 20.0)
        await one.follower.check()
        assert one.follower.status.success

    with LiveJournalFile(tmp_path) as journal:
        following(tmp_path, test)


def test_one_that_hangs_for_too_long_is_killed_and_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(one: Following) -> None:
        await one.until(lambda: one.follower.read_until > 0)
        old = one.pid
        os.kill(old, signal.SIGSTOP)
        monkeypatch.setattr(link_module, "SILENT_SECONDS", 0.2)
        monkeypatch.setattr(link_module, "GIVE_UP_SECONDS", 0.3)
        await asyncio.sleep(0.5)
        await one.follower.check()
        monkeypatch.setattr(link_module, "SILENT_SECONDS", 20.0)
        monkeypatch.setattr(link_module, "GIVE_UP_SECONDS", 600.0)
        journal.write(released(5))
        await one.until(lambda: one.tokens == [5])
        assert one.pid != old

    with LiveJournalFile(tmp_path) as journal:
        following(tmp_path, test)


def test_it_ends_with_the_daemon(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        await one.until(lambda: one.follower.status.success)
        process = one.link._process
        assert process is not None
        await one.link.aclose()
        assert process.poll() == 0

    with LiveJournalFile(tmp_path):
        following(tmp_path, test)


def test_signals_that_end_the_daemon_do_not_end_it_first(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        await one.until(lambda: one.follower.read_until > 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(one.pid, number)
        journal.write(released(5))
        await one.until(lambda: one.tokens == [5])

    with LiveJournalFile(tmp_path) as journal:
        following(tmp_path, test)


def test_it_may_have_as_many_files_open_as_the_system_allows_for_each_reader_holds_all_of_its_folder(
    tmp_path: Path,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def test(one: Following) -> None:
        await one.until(lambda: one.follower.read_until > 0)
        assert resource.prlimit(one.pid, resource.RLIMIT_NOFILE) == (hard, hard)

    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        with LiveJournalFile(tmp_path):
            following(tmp_path, test)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_that_dies_before_it_reads_anything_leaves_nobody_waiting(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        os.kill(one.pid, signal.SIGKILL)
        await one.until(lambda: "SIGKILL" in str(one.follower.status.reason))
        assert one.follower.caught_up

    with LiveJournalFile(tmp_path):
        following(tmp_path, test)


def test_a_journal_that_cannot_be_opened_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "RETRY_SECONDS", 0.1)

    async def test(one: Following) -> None:
        await one.until(lambda: one.follower.status.reason not in (None, "not opened yet"))
        assert one.follower.caught_up
        (tmp_path / "missing").mkdir()
        with LiveJournalFile(tmp_path / "missing") as journal:
            journal.write(released(5))
            await one.until(lambda: one.tokens == [5])

    following(tmp_path / "missing", test)


def test_on_a_disk_from_which_nobody_can_be_freed_another_one_is_tried_once_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "SILENT_SECONDS", 0.5)
    # Longer than the reader takes to look at the disk, for it is to be killed while it hangs there.
    monkeypatch.setattr(link_module, "GIVE_UP_SECONDS", 3.0)
    monkeypatch.setattr(link_module, "FIRST_WAIT_SECONDS", 0.1)

    with hanging_disk(tmp_path) as disk:
        log = disk.path / "log"
        log.write_text(f"{released(1)}\n")

        async def test(one: Following) -> None:
            one.link.pace(0.1)
            await one.until(lambda: one.tokens == [1])
            pids = {one.pid}
            disk.hang(unkillable=True)

            async def look() -> None:
                await one.follower.check()
                if one.link.pid is not None:
                    pids.add(one.link.pid)
                await asyncio.sleep(0.1)

            async with asyncio.timeout(40):
                while len(pids) < 2:
                    await look()
            for _ in range(40):
                await look()
            assert len(pids) == 2
            assert "is the disk hanging?" in str(one.follower.status.reason)
            disk.go_on()
            with log.open("a") as file:
                file.write(f"{released(2)}\n")
            await one.until(lambda: one.tokens == [1, 2])
            assert one.follower.gaps == 0

        following(LogFileSelection(str(log)), test)


def test_one_that_hangs_at_a_log_that_nobody_wants_any_more_is_ended_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "SILENT_SECONDS", 2.0)  # with a pace of 0.1 s it says a word every 0.4 s
    with hanging_disk(tmp_path) as disk:
        hanging, log = disk.path / "log", tmp_path / "log"
        hanging.write_text(f"{released(1)}\n")
        log.write_text(f"{released(2)}\n")

        async def test(one: Following) -> None:
            one.link.pace(0.1)
            other = JournalFollower(LogFileSelection(str(hanging)), one.link, one.entries.append)
            other.start_after(None, 0, head=True)
            other.poke()
            await one.until(lambda: sorted(one.tokens) == [1, 2])
            disk.hang()
            await one.until(lambda: one.link.hangs_with() is other)
            other.close()
            with log.open("a") as file:
                file.write(f"{released(3)}\n")

            def counted() -> bool:
                one.link.silence()
                return one.tokens[2:] == [3]

            await one.until(counted)

        following(LogFileSelection(str(log)), test)


@pytest.mark.parametrize("unkillable", [False, True])
def test_what_shares_a_process_with_a_log_that_hung_it_is_read_first_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unkillable: bool
) -> None:
    monkeypatch.setattr(link_module, "SILENT_SECONDS", 2.0)  # with a pace of 0.1 s it says a word every 0.4 s
    monkeypatch.setattr(link_module, "GIVE_UP_SECONDS", 3.0)
    monkeypatch.setattr(link_module, "HUNG_AGAIN_SECONDS", 3.0)
    monkeypatch.setattr(link_module, "REST_SECONDS", 3.0)
    with hanging_disk(tmp_path) as disk:
        hanging, log = disk.path / "log", tmp_path / "log"
        hanging.write_text(f"{released(1)}\n")
        log.write_text(f"{released(2)}\n")

        async def test(one: Following) -> None:
            one.link.pace(0.1)
            first = JournalFollower(LogFileSelection(str(hanging)), one.link, one.entries.append)
            first.start_after(None, 0, head=True)

            def counted(*tokens: int) -> bool:
                one.link.silence()
                first.poke()  # before the other one: it would be opened first
                return sorted(one.tokens) == list(tokens)

            await one.until(lambda: counted(1, 2))
            disk.hang(unkillable=unkillable)
            await one.until(lambda: counted(1, 2) and one.link.hangs_with() is first)
            for tokens in (3, 4):
                # In each process's life, though the disk hangs all the time.
                old = one.link.pid
                with log.open("a") as file:
                    file.write(f"{released(tokens)}\n")
                await one.until(lambda tokens=tokens: counted(*range(1, tokens + 1)))  # type: ignore[misc]
                assert one.link.pid != old
                if tokens == 3:
                    await one.until(lambda: counted() or one.link.hangs_with() is first)
            disk.go_on()
            with hanging.open("a") as file:
                file.write(f"{released(5)}\n")
            await one.until(lambda: counted(1, 2, 3, 4, 5))
            first.close()

        following(LogFileSelection(str(log)), test)
