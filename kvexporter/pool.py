"""Who holds how many tokens: the slots of one server, fused from its log and from `/slots`.

The log tells changes at once and the polls tell values, so both write into the same slots. A task's number decides
which of the two is newer: a poll that still shows a released task, or does not show a launched one yet, is older than
the log and is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvexporter.llama.slots import SlotSample
from kvexporter.snapshot import SlotSnapshot

MAX_SLOTS = 1024


@dataclass(slots=True)
class SlotState:
    """What is known of one slot."""

    id: int
    tokens: int | None
    processing: bool = False
    task: int | None = None
    finished_task: int | None = None
    prompt_tokens: int | None = None
    decoded: int = 0
    shifted: int = 0
    remaining: int | None = None
    started_at: float = 0.0
    changed_at: float = 0.0
    watched: bool = False
    """Something has shown the running task's progress, so that silence means a stall."""
    from_poll: bool = False
    """The tokens come from a poll and grow old with it."""

    def begin(self, task: int | None, at: float) -> None:
        self.processing, self.task = True, task
        self.prompt_tokens = self.remaining = None
        self.decoded = self.shifted = 0
        self.started_at = self.changed_at = at
        self.watched = self.from_poll = False

    def finish(self, tokens: int | None) -> None:
        self.processing = False
        self.finished_task = self.task
        self.prompt_tokens = self.remaining = None
        self.decoded = self.shifted = 0
        self.tokens = tokens
        self.from_poll = False

    def hold(self, tokens: int, at: float, *, from_poll: bool = False) -> None:
        if tokens != self.tokens:
            self.changed_at = at
        self.tokens, self.from_poll = tokens, from_poll

    def answer(self, decoded: int, at: float, *, from_poll: bool = False) -> None:
        """The answer has `decoded` tokens; the last one is not in the cache yet."""
        if decoded != self.decoded:
            self.changed_at = at
        self.decoded = decoded
        if decoded > 0 and self.prompt_tokens is not None:
            self.hold(max(0, self.prompt_tokens + decoded - 1 - self.shifted), at, from_poll=from_poll)


@dataclass(slots=True)
class Pool:
    """The slots of one server. Times are the facts' own; nothing here reads a clock."""

    slots: dict[int, SlotState] = field(default_factory=dict)
    empty_at_start: bool = False
    """The cache was empty when the slots were last counted anew, so that one not heard of holds nothing."""
    left_out: int = 0
    """Slots beyond the bound that were not taken in."""

    # ---- what the log tells ------------------------------------------------------------------------------------

    def restart(self) -> None:
        """The cache is new and empty: a start, a reload, or sleep."""
        self.slots.clear()
        self.empty_at_start = True

    def forget(self) -> None:
        """Nothing is known any more."""
        self.slots.clear()
        self.empty_at_start = False

    def expect(self, slots: int) -> None:
        """The server has this many slots, used or not."""
        for number in range(min(slots, MAX_SLOTS)):
            self._slot(number)

    def launch(self, slot: int, task: int | None, at: float) -> None:
        """A slot took a task; it still holds what it held until the server says what it reuses."""
        state = self._slot(slot)
        if state is None or (state.processing and state.task == task and task is not None):
            return  # a poll saw it first
        if task is not None and task == state.finished_task:
            return  # a poll saw it come and go
        state.begin(task, at)

    def prompt(self, slot: int, task: int | None, tokens: int, at: float) -> None:
        """The whole prompt of the running task has `tokens`."""
        state = self._running(slot, task, at)
        if state is not None:
            state.prompt_tokens = tokens

    def held(self, slot: int, task: int | None, tokens: int, at: float) -> None:
        """The slot holds exactly `tokens`."""
        state = self._running(slot, task, at)
        if state is not None:
            state.watched = True
            state.hold(tokens, at)

    def answered(self, slot: int, task: int | None, decoded: int, at: float) -> None:
        """The running answer has `decoded` tokens."""
        state = self._running(slot, task, at)
        if state is not None:
            state.watched = True
            state.answer(decoded, at)

    def release(self, slot: int, task: int | None, tokens: int) -> None:
        """The task ended with `tokens`; they stay as cache."""
        state = self._slot(slot)
        if state is None:
            return
        if task is not None:
            state.task = task
        state.finish(tokens)

    def shift(self, slot: int, discarded: int, at: float) -> None:
        """The slot dropped `discarded` of its tokens and goes on."""
        state = self._slot(slot)
        if state is None:
            return
        state.shifted += discarded
        if state.tokens is not None:
            state.hold(max(0, state.tokens - discarded), at)

    def clear(self, slot: int) -> None:
        """The slot's cache was dropped."""
        state = self._slot(slot)
        if state is not None:
            state.tokens, state.from_poll = 0, False

    def clear_idle(self, but: int) -> None:
        """All idle slots' caches were dropped, except that of slot `but`."""
        for state in self.slots.values():
            if not state.processing and state.id != but:
                state.tokens = 0

    def all_idle(self) -> None:
        """No slot is processing."""
        for state in self.slots.values():
            if state.processing:
                state.finish(state.tokens)

    def lose_polled(self) -> None:
        """Time has passed unseen: what polls told of running tasks is not known any more."""
        for state in self.slots.values():
            if state.processing and state.from_poll:
                state.tokens, state.from_poll = None, False

    # ---- what a poll tells -------------------------------------------------------------------------------------

    def sample(self, samples: Iterable[SlotSample], at: float, *, log_leads: bool) -> None:
        """Take one answer of `/slots`. `log_leads`: launches and releases are told by a log as well."""
        seen: set[int] = set()
        for sample in samples:
            state = self._slot(sample.id)
            if state is None:
                continue
            seen.add(sample.id)
            if sample.processing:
                self._sample_processing(state, sample, at)
            else:
                self._sample_idle(state, sample, log_leads=log_leads)
        for number in [number for number in self.slots if seen and number not in seen]:
            del self.slots[number]

    @staticmethod
    def _sample_processing(state: SlotState, sample: SlotSample, at: float) -> None:
        if sample.task is not None and sample.task == state.finished_task:
            return  # older than the release
        if not state.processing or (sample.task is not None and sample.task != state.task):
            if state.processing and state.task is not None and sample.task is not None and sample.task < state.task:
                return  # older than the launch
            state.begin(sample.task, at)
        state.watched = True
        state.remaining = sample.remaining
        if sample.held is not None:
            if (sample.decoded or 0) != state.decoded:
                state.changed_at, state.decoded = at, sample.decoded or 0
            state.hold(sample.held, at, from_poll=True)
        elif sample.decoded is not None:
            state.answer(sample.decoded, at, from_poll=True)

    @staticmethod
    def _sample_idle(state: SlotState, sample: SlotSample, *, log_leads: bool) -> None:
        if state.processing:
            if log_leads and state.task is not None and (sample.task is None or sample.task < state.task):
                return  # older than the launch
            state.finish(state.tokens)
        if sample.held is not None:
            state.tokens = sample.held
        elif sample.task is None and state.finished_task is None:
            state.tokens = 0  # never used

    # ---- what the model asks -----------------------------------------------------------------------------------

    @property
    def processing(self) -> bool:
        """At least one slot runs a task."""
        return any(state.processing for state in self.slots.values())

    @property
    def polled(self) -> bool:
        """A running slot's tokens come from a poll."""
        return any(state.processing and state.from_poll for state in self.slots.values())

    def running(self) -> dict[int, tuple[int | None, int | None]]:
        """Slot → (task, tokens) of the running ones."""
        return {s.id: (s.task, s.tokens) for s in self.slots.values() if s.processing}

    def tokens(self) -> tuple[int | None, int | None]:
        """(tokens of processing slots, tokens of idle slots); None where one of them is unknown, or no slot is."""
        if not self.slots:
            return (0, 0) if self.empty_at_start else (None, None)
        processing = [s.tokens for s in self.slots.values() if s.processing]
        idle = [s.tokens for s in self.slots.values() if not s.processing]
        return _sum(processing), _sum(idle)

    def snapshot(self, now: float, *, polled_tokens: bool = True) -> tuple[SlotSnapshot, ...]:
        """The slots by number. Without `polled_tokens`, values that came from polls are left out: too old."""
        return tuple(
            SlotSnapshot(
                id=s.id,
                processing=s.processing,
                tokens=s.tokens if polled_tokens or not (s.processing and s.from_poll) else None,
                task=s.task if s.processing else None,
                prompt_tokens=s.prompt_tokens,
                remaining=s.remaining,
                task_age=max(0.0, now - s.started_at) if s.processing else None,
                stalled=max(0.0, now - s.changed_at) if s.processing and s.watched else None,
            )
            for s in sorted(self.slots.values(), key=lambda s: s.id)
        )

    def _slot(self, number: int) -> SlotState | None:
        state = self.slots.get(number)
        if state is None and number >= 0:
            if len(self.slots) >= MAX_SLOTS:
                self.left_out += 1
                return None
            state = self.slots[number] = SlotState(number, 0 if self.empty_at_start else None)
        return state

    def _running(self, slot: int, task: int | None, at: float) -> SlotState | None:
        """The slot if it runs `task`, which a missed launch line may make known only now."""
        state = self._slot(slot)
        if state is None or (task is not None and task == state.finished_task):
            return None
        if not state.processing or (task is not None and task != state.task):
            state.begin(task, at)
        return state


def _sum(values: list[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
