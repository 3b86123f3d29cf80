"""Many with long work share a loop, which looks after all else between two slices."""

from __future__ import annotations

import asyncio
import re

import pytest

from kvexporter.turns import ROUNDS, Turns
from tests.support.asking import run


def test_the_loop_looks_after_others_between_two_slices() -> None:
    async def test() -> None:
        turns, order = Turns(), []

        def worker(name: str) -> None:
            order.append(name)
            if order.count(name) < 3:
                turns.ask(steps[name])

        steps = {name: lambda name=name: worker(name) for name in "abc"}
        for step in steps.values():
            turns.ask(step)
        while order.count("c") < 3:
            order.append("-")
            await asyncio.sleep(0)
        assert re.sub("-+", "-", "".join(order).strip("-")) == "a-b-c-a-b-c-a-b-c"

    run(test())


def test_asking_again_before_ones_turn_changes_nothing() -> None:
    async def test() -> None:
        turns, done = Turns(), []

        def step() -> None:
            done.append(1)

        turns.ask(step)
        turns.ask(step)
        for _ in range(4 * ROUNDS):
            await asyncio.sleep(0)
        assert done == [1]

    run(test())


def test_one_that_fails_does_not_cost_the_others_their_turn() -> None:
    async def test() -> None:
        turns, done, errors = Turns(), [], []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))

        def fail() -> None:
            raise ValueError("of my own")

        def step() -> None:
            done.append(1)

        turns.ask(fail)
        turns.ask(step)
        for _ in range(4 * ROUNDS):
            await asyncio.sleep(0)
        assert done == [1]
        with pytest.raises(ValueError, match="of my own"):
            raise errors[0]

    run(test())
