"""The end of a process is told at once, and never that of another one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvexporter.sources.process_end import ProcessEnds

DEADLINE = 30.0


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


async def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not done():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_end_is_told_once_before_the_parent_has_looked(sleeper: subprocess.Popen[bytes]) -> None:
    async def test() -> None:
        ended: list[int] = []
        before = descriptors()
        ends = ProcessEnds(ended.append)
        ends.watch(sleeper.pid)
        ends.watch(sleeper.pid)
        assert descriptors() == before + 1
        await asyncio.sleep(0.05)
        assert ended == []
        sleeper.kill()  # and left a zombie
        await until(lambda: bool(ended))
        await asyncio.sleep(0.05)
        assert ended == [sleeper.pid]
        assert descriptors() == before

    asyncio.run(test())


def test_one_that_is_a_zombie_already_is_told_too(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)

    async def test() -> None:
        ended: list[int] = []
        ProcessEnds(ended.append).watch(sleeper.pid)
        await until(lambda: bool(ended))

    asyncio.run(test())


def test_what_is_watched_no_more_is_not_told_of(sleeper: subprocess.Popen[bytes]) -> None:
    async def test() -> None:
        ended: list[int] = []
        before = descriptors()
        ends = ProcessEnds(ended.append)
        ends.watch(sleeper.pid)
        ends.keep({sleeper.pid, 1})
        assert descriptors() == before + 1
        ends.keep(set())
        assert descriptors() == before
        sleeper.kill()
        sleeper.wait()
        await asyncio.sleep(0.05)
        assert ended == []

    asyncio.run(test())


def test_a_process_that_is_gone_and_a_kernel_that_forbids_it_are_no_errors(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()

    async def test() -> None:
        ends = ProcessEnds(lambda pid: None)
        ends.watch(gone.pid)

        def forbidden(pid: int) -> int:
            raise PermissionError

        monkeypatch.setattr(os, "pidfd_open", forbidden)
        ends.watch(sleeper.pid)
        ends.keep(set())

    asyncio.run(test())
