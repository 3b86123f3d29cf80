"""What wakes the steps of the daemon before their time."""

from __future__ import annotations

import asyncio

from kvexporter.bell import Bell
from tests.support.asking import run


def test_who_waits_is_woken_at_once() -> None:
    async def test() -> None:
        bell = Bell()
        waiting = asyncio.create_task(bell.wait(60))
        await asyncio.sleep(0)
        bell.set()
        bell.set()
        assert await waiting
        assert bell.is_set()

    run(test())


def test_what_was_set_before_is_not_waited_for() -> None:
    async def test() -> None:
        bell = Bell()
        bell.set()
        assert await bell.wait(60)

    run(test())


def test_without_a_ring_the_wait_ends_with_its_time() -> None:
    async def test() -> None:
        bell = Bell()
        bell.set()
        bell.clear()
        assert not await bell.wait(0.01)
        assert not await bell.wait(-1)

    run(test())


def test_a_wait_that_was_broken_off_leaves_nothing_behind() -> None:
    async def test() -> None:
        bell = Bell()
        waiting = asyncio.create_task(bell.wait(60))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        bell.set()
        assert await bell.wait(60)

    run(test())
