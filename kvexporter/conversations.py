"""How conversations grow: requests of one slot that each go on with what the last one left in the cache.

Agents send their whole history with each turn, so the next turn is larger than the last one, until they compact.
Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvexporter.slot_state import SlotState

LEAST_TURNS = 4
"""Of a conversation, before its growth says anything."""

KEPT = 0.5
"""A turn that goes on with less than this part of the last one's tokens begins a conversation anew: it was compacted,
or is another client's."""

AHEAD = 1.5
"""Growth is followed no further ahead than so many times the time that it was watched for."""


@dataclass(slots=True)
class _Conversation:
    began: float
    """Time and size of its first turn …"""
    first: int
    at: float
    """… and of its latest one, at its largest."""
    size: int
    prompt: int
    task: int | None
    turns: int = 1
    compacted_at: int = 0
    """The largest size that the slot's conversation had when it was begun anew; 0: it never was."""

    @property
    def growth(self) -> float:
        """Tokens a second; 0 of too few turns."""
        passed = self.at - self.began
        if self.turns < LEAST_TURNS or passed <= 0:
            return 0.0
        return max(0.0, (self.size - self.first) / passed)


class Conversations:
    """The conversations of one pool, at most one for each slot, and when they need all of it together."""

    def __init__(self) -> None:
        self._slots: dict[int, _Conversation] = {}

    def sample(self, running: Iterable[SlotState], sizes: Iterable[int], at: float) -> None:
        """Look at the running requests, whose sizes as far as they are known are `sizes`."""
        for state, size in zip(running, sizes, strict=True):
            if state.parent is not None or state.reused is None:
                continue
            if state.decoded == 0 and state.expected_prompt is None:
                continue  # neither its size nor what it goes on with is settled
            known = self._slots.get(state.id)
            prompt = state.prompt_floor
            if known is not None and known.task == state.task:
                known.at, known.size, known.prompt = at, size, prompt
                if known.turns == 1:
                    known.began, known.first = at, size
            elif known is not None and state.reused >= KEPT * known.size:
                known.at, known.size, known.prompt, known.task = at, size, prompt, state.task
                known.turns += 1
            else:
                # What is compacted again and again at one size is not expected to get larger.
                most = known.size if known is not None and state.reused and known.turns >= LEAST_TURNS else 0
                self._slots[state.id] = _Conversation(at, size, at, size, prompt, state.task, 1, most)

    def seconds_to_full(self, capacity: int, window: int, context: int | None, now: float) -> float | None:
        """Seconds from `now` until all of them together need the capacity, if each goes on growing as it did.

        None as long as none has begun a turn with more than `window` tokens: clients that keep within what a slot is
        sure of send no more. One that has not been heard of for as long as it was watched counts no more.
        """
        live = [each for each in self._slots.values() if now - each.at <= max(60.0, each.at - each.began)]
        growing = [each for each in live if each.growth > 0]
        if max((each.prompt for each in growing), default=0) <= window:
            return None
        watched = now - min(each.began for each in growing)
        bounds = [min(each.compacted_at or capacity, context or capacity, capacity) for each in live]
        ahead = _reaches(live, bounds, capacity, now)
        return None if ahead is None or ahead > AHEAD * watched else max(0.0, ahead)


def _reaches(live: list[_Conversation], bounds: list[int], capacity: int, now: float) -> float | None:
    """When the sum reaches the capacity: a line for each, which ends at its bound."""
    total = 0.0
    ends: list[tuple[float, float]] = []
    for each, bound in zip(live, bounds, strict=True):
        size = float(max(each.size, min(bound, each.size + each.growth * (now - each.at))))
        total += size
        if each.growth > 0 and size < bound:
            ends.append(((bound - size) / each.growth, each.growth))
    ends.sort()
    speed, passed, left = sum(part for _, part in ends), 0.0, capacity - total
    if left <= 0:
        return 0.0
    for end, part in ends:
        if speed * (end - passed) >= left:
            return passed + left / speed
        left -= speed * (end - passed)
        passed = end
        speed -= part
    return None
