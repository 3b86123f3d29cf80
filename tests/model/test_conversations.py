"""Conversations that grow: when they will need the whole pool together, and when nothing is said of it."""

from __future__ import annotations

import pytest

from kvexporter.conversations import Conversations
from kvexporter.slot_state import SlotState

CAPACITY, GUARANTEED = 100_000, 25_000
TURN = 10.0


def turn(
    conversations: Conversations, slot: int, task: int, size: int, at: float, *, reused: int | None, told: bool = True
) -> None:
    """One request that has been read: `reused` of its tokens were in the cache."""
    state = SlotState(slot, size, processing=True, task=task, decoded=1 if told else 0, reused=reused)
    conversations.sample([state], [size], at)


def grow(conversations: Conversations, slot: int, sizes: list[int], *, reuse: bool = True, start: float = 0.0) -> float:
    """A turn every ten seconds, each with all of the last one; when the last one was read."""
    at, before = start, 0
    for number, size in enumerate(sizes):
        at = start + number * TURN
        turn(conversations, slot, round(start) + number, size, at, reused=before if reuse else 0)
        before = size
    return at


def left(conversations: Conversations, now: float, context: int | None = CAPACITY) -> float | None:
    return conversations.seconds_to_full(CAPACITY, GUARANTEED, context, now)


def test_two_that_grow_need_the_pool_when_a_ruler_says() -> None:
    """1,000 and 500 tokens a second: 40,000 and 20,000 at 30 s, so the 40,000 that are left take 40,000 / 1,500 s."""
    conversations = Conversations()
    grow(conversations, 0, [10_000, 20_000, 30_000, 40_000])
    now = grow(conversations, 1, [5_000, 10_000, 15_000, 20_000])
    assert left(conversations, now) == pytest.approx(40_000 / 1_500)


def test_between_turns_it_goes_on_as_if_they_grew() -> None:
    conversations = Conversations()
    grow(conversations, 0, [10_000, 20_000, 30_000, 40_000])
    now = grow(conversations, 1, [5_000, 10_000, 15_000, 20_000])
    assert left(conversations, now + 5) == pytest.approx(40_000 / 1_500 - 5)


def test_requests_that_go_on_with_nothing_are_no_conversation() -> None:
    conversations = Conversations()
    grow(conversations, 0, [10_000, 20_000, 30_000, 40_000], reuse=False)
    now = grow(conversations, 1, [10_000, 20_000, 30_000, 40_000], reuse=False)
    assert left(conversations, now) is None


def test_where_nobody_tells_what_was_reused_nothing_is_said() -> None:
    conversations = Conversations()
    for number in range(6):
        turn(conversations, 0, number, 10_000 * number, number * TURN, reused=None)
    assert left(conversations, 50) is None


def test_as_long_as_all_are_within_the_guaranteed_window_nothing_is_said() -> None:
    """Clients that were told it compact before it, and look the same until then."""
    conversations = Conversations()
    for slot in range(4):
        grow(conversations, slot, [10_000, 14_000, 19_000, 24_900])
    assert left(conversations, 30) is None


def test_three_turns_are_too_few() -> None:
    conversations = Conversations()
    grow(conversations, 0, [20_000, 30_000, 40_000])
    now = grow(conversations, 1, [20_000, 30_000, 40_000])
    assert left(conversations, now) is None


def test_one_alone_cannot_fill_a_pool_as_large_as_its_slot() -> None:
    conversations = Conversations()
    now = grow(conversations, 0, [10_000, 20_000, 30_000, 40_000])
    assert left(conversations, now, context=90_000) is None


def test_one_that_was_compacted_is_not_expected_to_get_larger_than_it_was_then() -> None:
    """Both compact at 45,000, which leaves 10,000 of the pool; without that, they would fill it."""
    conversations, naive = Conversations(), Conversations()
    for slot in (0, 1):
        grow(conversations, slot, [30_000, 35_000, 40_000, 45_000])
        turn(conversations, slot, 90, 10_000, 40, reused=3_000)
        for number, size in enumerate((20_000, 30_000, 40_000)):
            turn(conversations, slot, 91 + number, size, 50 + number * TURN, reused=size - 10_000)
        grow(naive, slot, [10_000, 20_000, 30_000, 40_000], start=40)
    assert left(conversations, 70) is None
    assert left(naive, 70) is not None


def test_it_is_followed_no_further_ahead_than_half_as_long_again_as_it_was_watched() -> None:
    """Another 40,000 at 200 and at 1,500 tokens a second, after 30 s."""
    slow = Conversations()
    grow(slow, 0, [29_000, 29_400, 29_800, 30_200])
    now = grow(slow, 1, [27_000, 27_400, 27_800, 28_200])
    assert left(slow, now) is None


def test_one_that_has_long_been_silent_counts_no_more() -> None:
    conversations = Conversations()
    grow(conversations, 0, [10_000, 20_000, 30_000, 40_000])
    now = grow(conversations, 1, [5_000, 10_000, 15_000, 20_000])
    assert left(conversations, now + 61) is None
