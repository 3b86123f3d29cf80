"""Who holds how many tokens: the slots of one server, fused from its log and from `/slots`.

The log tells changes at once, but its lines can arrive half a second late; polls tell values. So every word about a
slot counts from its own time on: what is older than the latest word is passed over, and a task's number tells apart
what time alone cannot. Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvexporter.llama.slots import SlotSample
from kvexporter.slot_polled import take_idle, take_processing
from kvexporter.slot_state import SlotState
from kvexporter.snapshot import SlotSnapshot

MAX_SLOTS = 1024

ROUGH = 10
"""Parts of less than so many rounding steps say too little: at ten they are off by up to 5 %."""


@dataclass(slots=True)
class Pool:
    """The slots of one server."""

    slots: dict[int, SlotState] = field(default_factory=dict)
    empty_at_start: bool = False
    """The cache was empty when the slots were last counted anew, so that one not heard of holds nothing."""
    left_out: int = 0
    """Slots beyond the bound that were not taken in."""
    family: int | None = None
    """The task launched last that is no further answer to another one's prompt."""

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

    def choose(self, slot: int, similarity: float, kept: float, step: float) -> None:
        """A slot is about to take a request: the part `similarity` of its prompt is the part `kept` of the cache."""
        state = self._slot(slot)
        if state is not None:
            rough = similarity < ROUGH * step or kept < ROUGH * step
            rounding = 0.0 if rough else step / 2 / similarity + step / 2 / kept
            state.chosen = None if rough else (kept / similarity, kept, rounding)

    def launch(self, slot: int, task: int | None, at: float, *, child: bool = False) -> None:
        """A slot took a task. What it holds is unknown until somebody says what of its old cache is kept."""
        if not child:
            self.family = task
        state = self._slot(slot)
        if state is None:
            return
        if state.processing and task is not None and state.task == task:
            state.started_at = min(state.started_at, at)  # a poll saw it first
        elif at < state.polled_at or (task is not None and task == state.released_task):
            state.chosen = None
            return  # it came and went before the latest poll
        else:
            state.begin(task, at)
        state.parent = self.family if child else None
        state.launched()

    def prompt(self, slot: int, task: int | None, tokens: int, at: float) -> None:
        """The whole prompt of the running task has `tokens`."""
        state = self._running(slot, task, at)
        if state is not None:
            state.prompt_tokens = tokens

    def held(self, slot: int, task: int | None, tokens: int, at: float) -> None:
        """The slot holds exactly `tokens`, and is about to read on."""
        state = self._running(slot, task, at)
        if state is not None:
            if state.tokens is None and state.reused is None:
                state.reused = tokens  # told again before each batch: the first word is of the old cache
            state.hold(tokens, at)

    def reading(self, slot: int, task: int | None, tokens: int, progress: float, step: float, at: float) -> None:
        """So much of its prompt is held, which is the part `progress` (0 to 1, rounded to `step`) of the whole."""
        state = self._running(slot, task, at)
        if state is None:
            return
        state.hold(tokens, at)
        done = progress >= 1 - step / 2
        # Reading is told batch by batch; what comes after it may not be told at all.
        state.watched = not done
        if progress > 0:
            state.prompt_at_least = max(state.prompt_at_least, tokens / min(1.0, progress + step / 2), float(tokens))
            if progress > step:
                state.prompt_at_most = max(
                    state.prompt_at_least, min(state.prompt_at_most, tokens / (progress - step / 2))
                )

    def read(self, slot: int, task: int | None, tokens: int, at: float) -> None:
        """The whole prompt is held: `tokens`, whatever was said of its size before it was cut."""
        state = self._running(slot, task, at)
        if state is not None:
            state.prompt_tokens = tokens
            state.watched = False
            state.hold(tokens, at)

    def answered(self, slot: int, task: int | None, decoded: int, at: float) -> None:
        """The running answer has `decoded` tokens."""
        state = self._running(slot, task, at)
        if state is not None:
            state.watched = True
            state.answer(decoded, at)

    def release(self, slot: int, task: int | None, tokens: int, at: float) -> None:
        """The task ended with `tokens`; they stay as cache."""
        state = self._slot(slot)
        if state is None:
            return
        if task is not None:
            state.released_task = task
            if state.processing and state.task is not None and state.task != task:
                state.cached = tokens
                return  # a poll has seen the next one already
        if not state.processing and at < state.valued_at:
            return  # a poll has seen what became of them
        state.finish(tokens, at)

    def shift(self, slot: int, task: int | None, discarded: int, kept: int | None, at: float) -> None:
        """The slot forgot `discarded` tokens and holds `kept` now (None: not told)."""
        state = self._running(slot, task, at)
        if state is None:
            return
        state.shifted += discarded
        if kept is not None:
            state.hold(kept, at)
        elif state.tokens is not None:
            state.hold(max(0, state.tokens - discarded), at)

    def clear(self, slot: int, at: float) -> None:
        """The slot's cache was dropped."""
        state = self._slot(slot)
        if state is not None and at >= state.valued_at:
            state.tokens, state.carried, state.valued_at = 0, 0, at

    def clear_idle(self, but: int, at: float) -> None:
        """All idle slots' caches were dropped, except that of slot `but`."""
        for state in self.slots.values():
            if not state.processing and state.id != but and at >= state.valued_at:
                state.tokens = 0

    def all_idle(self, at: float) -> None:
        """No slot was processing at `at`."""
        for state in self.slots.values():
            if state.processing and at >= max(state.started_at, state.polled_at):
                state.finish(state.tokens, at)

    def lose_polled(self) -> None:
        """Time has passed unseen: what polls told of running tasks is not known any more."""
        for state in self.slots.values():
            if state.processing and state.valued_at == state.polled_at:
                state.tokens = None

    # ---- what a poll tells -------------------------------------------------------------------------------------

    def sample(self, samples: Iterable[SlotSample], at: float, *, log_leads: bool, until: float | None = None) -> None:
        """Take one answer of `/slots`, true of some time from `at` (when it was asked for) `until` it came.

        `log_leads`: launches and releases are told by a log as well.
        """
        seen: set[int] = set()
        samples = tuple(samples)
        reading = sum(1 for sample in samples if sample.processing and not sample.decoded)
        for sample in samples:
            state = self._slot(sample.id)
            if state is None:
                continue
            seen.add(sample.id)
            if sample.processing:
                # While another prompt is read, this one may wait, and shows what the slot held before.
                begun = reading == 1 or bool(sample.decoded) or sample.held == 0
                take_processing(state, sample, at, log_leads=log_leads, until=until, begun=begun)
            else:
                take_idle(state, sample, at, log_leads=log_leads)
        for number in [number for number in self.slots if seen and number not in seen]:
            del self.slots[number]

    # ---- what the model asks -----------------------------------------------------------------------------------

    @property
    def processing(self) -> bool:
        """At least one slot runs a task."""
        for state in self.slots.values():  # noqa: SIM110 - asked after every line: any() takes three times as long
            if state.processing:
                return True
        return False

    @property
    def reads_on(self) -> bool:
        """A prompt is being read, of which more is to come."""
        return any(
            state.processing
            and state.tokens is not None
            and state.decoded == 0
            and (state.expected_prompt or 0) > state.tokens
            for state in self.slots.values()
        )

    def running(self) -> set[int]:
        """The slots that run a task."""
        return {state.id for state in self.slots.values() if state.processing}

    def processing_tokens(self, since: float, since_launch: float) -> int | None:
        """Tokens of the slots that run a task, cells shared by several answers counted once; None where unknown.

        Values from before `since` are too old. A task launched after `since_launch` may still be without a word on its
        size: it counts nothing until then, and as long as it waits for another one's prompt to be read.
        """
        if not self.slots:
            return 0 if self.empty_at_start else None
        total = 0
        families: set[int | None] = set()
        for state in self.slots.values():
            if not state.processing:
                continue
            if state.tokens is None or state.valued_at < since:
                if state.tokens is None and (state.started_at >= since_launch or self._waits(state)):
                    continue
                return None
            if state.parent is None:
                total += state.tokens
                families.add(state.task)
        for state in self.slots.values():
            if state.processing and state.parent is not None and state.tokens is not None:
                # With its parent gone, one of the answers still holds the prompt.
                total += (state.own_tokens or 0) if state.parent in families else state.tokens
                families.add(state.parent)
        return total

    def idle_tokens(self) -> int | None:
        """Tokens that can be given back: cache of idle slots, and what launched ones have not taken up yet."""
        if not self.slots:
            return 0 if self.empty_at_start else None
        total = 0
        for state in self.slots.values():
            held = (state.carried if state.tokens is None else 0) if state.processing else state.tokens
            if held is None:
                return None
            total += held
        return total

    def snapshot(self, now: float, since: float) -> tuple[SlotSnapshot, ...]:
        """The slots by number. Running ones' values from before `since` are left out: too old."""
        reading = [s.changed_at for s in self.slots.values() if s.processing and s.watched and s.decoded == 0]
        return tuple(
            SlotSnapshot(
                id=s.id,
                processing=s.processing,
                tokens=None if s.processing and s.valued_at < since else s.tokens,
                task=s.task if s.processing else None,
                prompt_tokens=s.prompt_tokens,
                remaining=s.remaining,
                task_age=max(0.0, now - s.started_at) if s.processing else None,
                stalled=_stalled(s, now, reading),
            )
            for s in sorted(self.slots.values(), key=lambda s: s.id)
        )

    def _waits(self, state: SlotState) -> bool:
        """The slot's prompt is not begun with: prompts are read one after the other, and another one's is not done."""
        return state.decoded == 0 and self.reads_on

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
        if state is None or (task is not None and task == state.released_task):
            return None
        if not state.processing or (task is not None and task != state.task):
            if at < state.polled_at:
                return None  # over, or not yet begun, at the latest poll
            state.begin(task, at)
        return state


def _stalled(state: SlotState, now: float, reading: list[float]) -> float | None:
    """Seconds since anything of a running task changed; one that waits to be read waits for the others' prompts."""
    if not state.processing or not state.watched:
        return None
    changed = max([state.changed_at, *reading]) if state.decoded == 0 else state.changed_at
    return max(0.0, now - changed)
