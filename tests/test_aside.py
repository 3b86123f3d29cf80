"""Calls that may hang: they cost the loop nothing, and one that hangs is left behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kvexporter.aside import Aside
from tests.support.asking import run


def test_gives_what_the_call_gives_and_raises_what_it_raises() -> None:
    async def test() -> None:
        aside: Aside[int] = Aside("counting")
        assert await aside.call(lambda: 7, 10) == 7
        with pytest.raises(OSError, match="no disk"):
            await aside.call(_fail, 10)
        assert await aside.call(lambda: 8, 10) == 8

    run(test())


def _fail() -> int:
    raise OSError("no disk")


def test_the_loop_turns_while_a_call_is_under_way() -> None:
    async def test() -> None:
        release, aside = threading.Event(), Aside[bool]("waiting")
        call = asyncio.create_task(aside.call(lambda: release.wait(60), 60))
        for _ in range(3):
            await asyncio.sleep(0.01)
        assert not call.done()
        release.set()
        assert await call

    run(test())


def test_who_asks_while_one_is_under_way_gets_its_result() -> None:
    async def test() -> None:
        release, aside, calls = threading.Event(), Aside[int]("waiting"), []

        def work() -> int:
            calls.append(1)
            release.wait(60)
            return len(calls)

        first, second = (asyncio.create_task(aside.call(work, 60)) for _ in range(2))
        await asyncio.sleep(0.01)
        release.set()
        assert (await first, await second) == (1, 1)

    run(test())


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_that_hangs_is_left_behind_and_blocks_further_ones_until_it_comes_back(fails: bool) -> None:
    async def test() -> None:
        release, aside = threading.Event(), Aside[int]("looking at a dead disk")

        def hang() -> int:
            release.wait(60)
            return _fail() if fails else 1

        with pytest.raises(TimeoutError, match=r"looking at a dead disk: no result within 0\.05 s"):
            await aside.call(hang, 0.05)
        with pytest.raises(TimeoutError, match="an earlier attempt has not come back"):
            await aside.call(lambda: 2, 60)
        release.set()
        async with asyncio.timeout(30):
            while True:
                try:
                    assert await aside.call(lambda: 3, 10) == 3
                    return
                except TimeoutError:
                    await asyncio.sleep(0.01)

    run(test())
