"""A server's log and answers, made from what its clients ask for: the arithmetic of slots, without a clock or I/O.

It holds for requests that fit. How a pool runs out is never made up here: that is a recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvexporter.demo import dialect

STEP = 1.0
"""Seconds between two states that are worked out."""

_SAID_EVERY = 3.0
"""Seconds after which the server says how far a prompt or an answer is."""


@dataclass(frozen=True)
class Shape:
    """How a server's KV cache is cut, and how fast it is (tokens a second of all slots, and of one answer)."""

    slots: int
    slot_context: int
    unified: bool
    model: str
    read_speed: int = 4000
    write_speed: int = 20


@dataclass(frozen=True)
class Ask:
    """One request: when, to which slot, the whole prompt, what of it is cached, the answer, and its limit."""

    at: float
    slot: int
    prompt: int
    answer: int
    cached: int = 0
    limit: int = 4096


@dataclass(frozen=True)
class State:
    """What a server answers from a time on."""

    at: float
    slots: list[dict[str, Any]]
    metrics: dict[str, float]


@dataclass(frozen=True)
class Part:
    """Some time of a server's life. Times are seconds since it began; task numbers begin at 0."""

    duration: float
    lines: tuple[tuple[float, str], ...]
    """Without time stamps."""
    states: tuple[State, ...] = ()
    tasks: int = 0
    """Task numbers that it uses."""


@dataclass
class _Slot:
    """One slot while requests are worked on."""

    id: int
    task: int = -1
    ask: Ask | None = None
    held: int = 0
    limit: int = 0
    written: int = 0
    began: float = 0.0
    read_at: float | None = None
    """When the prompt had been read."""
    said: float = 0.0
    last_used: int = -1
    waiting: list[Ask] = field(default_factory=list)

    @property
    def reads(self) -> bool:
        return self.ask is not None and self.read_at is None

    @property
    def writes(self) -> bool:
        return self.ask is not None and self.read_at is not None


class _Composer:
    def __init__(self, shape: Shape, asks: Sequence[Ask]) -> None:
        self._shape = shape
        self._slots = [_Slot(number) for number in range(shape.slots)]
        for ask in sorted(asks, key=lambda one: one.at):
            if ask.prompt + ask.answer > shape.slot_context:
                raise ValueError(f"{ask} does not fit a slot of {shape.slot_context} tokens")
            self._slots[ask.slot].waiting.append(ask)
        self._lines: list[tuple[float, str]] = []
        self._states: list[State] = []
        self._totals: dict[str, float] = dict.fromkeys((name for name, _ in dialect.COUNTERS), 0)
        self._tasks = 0
        self._held_most = 0

    def compose(self, duration: float) -> Part:
        for step in range(int(duration / STEP)):
            at = step * STEP
            self._launch(at)
            self._note(at + 0.01)
            self._read(at + STEP)
            self._write(at + STEP)
            self._note(at + STEP)
        if any(slot.ask or slot.waiting for slot in self._slots):
            raise ValueError(f"not all requests end within {duration:g} s")
        if self._held_most > self._shape.slot_context and self._shape.unified:
            raise ValueError("the requests do not fit the pool")
        return Part(duration, tuple(self._lines), tuple(self._states), self._tasks)

    def _note(self, at: float) -> None:
        """What it answers from now on."""
        slots = [self._answer(slot) for slot in self._slots]
        if not self._states or slots != self._states[-1].slots:
            working = sum(slot.ask is not None for slot in self._slots)
            self._states.append(State(at, slots, {**self._totals, "requests_processing": working}))

    def _say(self, at: float, *texts: str) -> None:
        # A tenth of a millisecond apart, so that no two lines have one time.
        last = self._lines[-1][0] if self._lines else -1.0
        for text in texts:
            last = max(at, last + 0.0001)
            self._lines.append((last, text))

    def _launch(self, at: float) -> None:
        for slot in self._slots:
            if slot.ask is not None or not slot.waiting or slot.waiting[0].at > at:
                continue
            ask = slot.waiting.pop(0)
            self._tasks += 1
            slot.task, slot.ask, slot.held, slot.limit = self._tasks, ask, ask.cached, ask.limit
            slot.written, slot.began, slot.read_at, slot.said = 0, at, None, at
            self._say(at, *dialect.launch(slot.id, slot.task, slot.last_used))
            if self._shape.unified:  # idle slots' caches are given up when a task starts
                for other in self._slots:
                    if other.ask is None:
                        other.held = 0

    def _read(self, at: float) -> None:
        room = int(self._shape.read_speed * STEP)
        for slot in sorted((slot for slot in self._slots if slot.reads), key=lambda slot: slot.task):
            assert slot.ask is not None  # noqa: S101 - what reads has a request
            now = min(room, slot.ask.prompt - slot.held)
            room -= now
            slot.held += now
            self._totals["prompt_tokens_total"] += now
            if slot.held == slot.ask.prompt:
                slot.read_at = slot.said = at
                self._totals["prompt_tokens_cached_total"] += slot.ask.cached
                self._totals["prompt_seconds_total"] += at - slot.began
            elif now and at - slot.began >= _SAID_EVERY:
                seconds = at - slot.began
                self._say(at, dialect.reading(slot.id, slot.task, slot.held, slot.ask.prompt, slot.ask.cached, seconds))
        self._held_most = max(self._held_most, sum(slot.held for slot in self._slots if slot.ask is not None))

    def _write(self, at: float) -> None:
        wrote = 0
        for slot in self._slots:
            if not slot.writes or slot.read_at == at:
                continue
            assert slot.ask is not None  # noqa: S101
            assert slot.read_at is not None  # noqa: S101
            now = min(int(self._shape.write_speed * STEP), slot.ask.answer - slot.written)
            slot.written += now
            slot.held += now
            wrote = max(wrote, now)
            self._totals["tokens_predicted_total"] += now
            self._totals["tokens_predicted_seconds_total"] += STEP
            self._totals["n_tokens_max"] = max(self._totals["n_tokens_max"], slot.held)
            speed = slot.written / (at - slot.read_at)
            if slot.written == slot.ask.answer:
                self._end(slot, at)
            elif at - slot.said >= _SAID_EVERY:
                slot.said = at
                self._say(at, dialect.writing(slot.id, slot.task, slot.written, speed, speed))
        self._totals["n_decode_total"] += wrote
        self._held_most = max(self._held_most, sum(slot.held for slot in self._slots if slot.ask is not None))

    def _end(self, slot: _Slot, at: float) -> None:
        ask, read_at = slot.ask, slot.read_at
        assert ask is not None  # noqa: S101
        assert read_at is not None  # noqa: S101
        read = ask.prompt - ask.cached
        times = dialect.done(slot.id, slot.task, read, read_at - slot.began, ask.answer, at - read_at)
        slot.held = ask.prompt + ask.answer - 1  # the answer's last token is not in the cache yet
        self._say(at, *times, dialect.release(slot.id, slot.task, slot.held))
        slot.ask, slot.read_at, slot.last_used = None, None, round(at * 1e6)

    def _answer(self, slot: _Slot) -> dict[str, Any]:
        if slot.task < 0:
            return dialect.unused_slot(slot.id, self._shape.slot_context)
        working = None
        if slot.ask is not None:
            working = (slot.held - slot.written - slot.ask.cached, slot.ask.cached, slot.written)
        written = self._shape.slot_context, slot.task, slot.held, slot.limit
        return dialect.used_slot(slot.id, *written, working)


def compose(shape: Shape, asks: Sequence[Ask], duration: float) -> Part:
    """Let a server of this shape answer these requests. ValueError when they do not fit it or its time."""
    return _Composer(shape, asks).compose(duration)
