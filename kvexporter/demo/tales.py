"""The servers of the demonstration and what they live through: an opening, then a round that comes again and again.

`agents` ends its round as a recorded server did; all that its clients do before, and the other servers, is composed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kvexporter.demo import dialect
from kvexporter.demo.composing import Ask, Part, Shape, State, compose
from kvexporter.demo.story import Story, load_story

_TASK = re.compile(r"(?<= task )\d+|(?<=id_task = )\d+|(?<=task id = )\d+")


@dataclass(frozen=True)
class Tale:
    """A server's life. Times are seconds since its start, in its own time."""

    name: str
    says: str
    """What it is, for a person."""
    shape: Shape
    opening: Part
    round: Part
    pause: float = 0.0
    """Seconds between two rounds."""
    forgets: bool = False
    """Between two rounds its slots are lost, with its model."""
    fastest: float = 1000.0
    """More times faster than its own time than this it is not played."""

    def _part(self, now: float) -> tuple[Part, float, int]:
        """The part at that time, when it began, and the number of rounds that were over then (-1: the opening)."""
        if now < self.opening.duration:
            return self.opening, 0.0, -1
        each = self.round.duration + self.pause
        number = int((now - self.opening.duration) / each)
        return self.round, self.opening.duration + number * each, number

    def lines(self) -> Iterator[tuple[float, str]]:
        """Every line with its time, without end; no time stamps."""
        yield from self.opening.lines
        began, tasks = self.opening.duration, self.opening.tasks
        while True:
            for at, text in self.round.lines:
                yield began + at, _renumbered(text, tasks)
            began += self.round.duration + self.pause
            tasks += self.round.tasks

    def slots(self, now: float) -> list[dict[str, Any]]:
        """`/slots` at that time."""
        part, began, number = self._part(now)
        state = _state(part, now - began)
        tasks = 0 if number < 0 else self.opening.tasks + number * self.round.tasks
        slots = state.slots if state is not None else self.unused_slots
        if number < 0 or self.forgets:
            return _moved(slots, tasks)
        last = self._last_slots if number else self._slots_of(self.opening)
        before = _moved(last, self.opening.tasks + (number - 1) * self.round.tasks if number else 0)
        # Who has not worked yet in this round still shows the one before.
        return [
            shown if "id_task" in shown else self._kept(old, state is not None)
            for shown, old in zip(_moved(slots, tasks), before, strict=True)
        ]

    def metrics(self, now: float) -> str:
        """`/metrics` at that time."""
        part, began, number = self._part(now)
        state = _state(part, now - began)
        values = dict(state.metrics) if state is not None else {}
        if number >= 0:
            for name in dialect.SUMS:
                once, more = _total(self.opening, name), _total(self.round, name)
                values[name] = values.get(name, 0) + once + number * more
            most = [values.get("n_tokens_max", 0), _total(self.opening, "n_tokens_max")]
            values["n_tokens_max"] = max(*most, _total(self.round, "n_tokens_max") if number else 0)
        return dialect.metrics_text(values)

    def props(self, sleeping: bool) -> dict[str, Any]:
        """`/props`."""
        return dialect.props(self.shape.model, self.shape.slots, self.shape.slot_context, sleeping)

    @cached_property
    def ready_at(self) -> float:
        """When it begins to answer; before, it is loading its model."""
        return next(at for at, text in self.opening.lines if "model loaded" in text)

    @property
    def unused_slots(self) -> list[dict[str, Any]]:
        """`/slots` of a server that has just loaded its model."""
        return [dialect.unused_slot(slot, self.shape.slot_context) for slot in range(self.shape.slots)]

    def _slots_of(self, part: Part) -> list[dict[str, Any]]:
        return part.states[-1].slots if part.states else self.unused_slots

    @cached_property
    def _last_slots(self) -> list[dict[str, Any]]:
        return self._slots_of(self.round)

    def _kept(self, slot: dict[str, Any], begun: bool) -> dict[str, Any]:
        # A shared pool's idle caches are given up when a task starts.
        return {**slot, "n_prompt_tokens": 0} if begun and self.shape.unified and "id_task" in slot else slot


def _state(part: Part, at: float) -> State | None:
    found = bisect_right([state.at for state in part.states], at) - 1
    return part.states[found] if found >= 0 else None


def _total(part: Part, name: str) -> float:
    return part.states[-1].metrics.get(name, 0) if part.states else 0


def _renumbered(text: str, by: int) -> str:
    return _TASK.sub(lambda found: str(int(found[0]) + by), text) if by else text


def _moved(slots: list[dict[str, Any]], by: int) -> list[dict[str, Any]]:
    return [{**slot, "id_task": slot["id_task"] + by} if "id_task" in slot else slot for slot in slots]


def joined(first: Part, then: Part) -> Part:
    """One part after the other."""
    lines = [(first.duration + at, _renumbered(text, first.tasks)) for at, text in then.lines]
    states = []
    for state in then.states:
        values = dict(state.metrics)
        for name in dialect.SUMS:
            values[name] = values.get(name, 0) + _total(first, name)
        values["n_tokens_max"] = max(values.get("n_tokens_max", 0), _total(first, "n_tokens_max"))
        states.append(State(first.duration + state.at, _moved(state.slots, first.tasks), values))
    duration, tasks = first.duration + then.duration, first.tasks + then.tasks
    return Part(duration, (*first.lines, *lines), (*first.states, *states), tasks)


def _spread(texts: list[str], start: float, each: float = 0.02) -> tuple[tuple[float, str], ...]:
    return tuple((start + number * each, text) for number, text in enumerate(texts))


def _opening(shape: Shape) -> Part:
    texts = dialect.start(shape.model, shape.slots, shape.slot_context, shape.unified)
    return Part(1.0, _spread(texts, 0.001))


# ---- agents: a shared pool that is promised four times ---------------------------------------------------------------


def _recorded(story: Story) -> Part:
    """The recorded incident, from its first request to the last word about the error."""
    lines = [(at, dialect.STAMP.sub("", text)) for at, text in story.lines]
    first = next(number for number, (_, text) in enumerate(lines) if "get_availabl" in text)
    last = max(number for number, (_, text) in enumerate(lines) if "Context size has been exceeded" in text)
    began, ended = lines[first][0], lines[last][0]
    states = [
        State(answer.at - began, answer.slots, dialect.read_metrics(answer.metrics))
        for answer in story.answers
        if answer.at >= began
    ]
    tasks = 1 + max(int(found) for _, text in lines for found in _TASK.findall(text))
    # The last answer was asked for after the end, and is true from then on.
    duration = max(ended - began, states[-1].at) + STEP_AFTER
    return Part(duration, tuple((at - began, text) for at, text in lines[first : last + 1]), tuple(states), tasks)


STEP_AFTER = 0.5
"""Seconds after a recording's last word that still belong to it."""

TURN_STARTS = (2.0, 44.0, 86.0, 128.0)
TURN_SECONDS = 172.0
HISTORIES = {3: (45_000, 72_000, 98_000, 124_000), 2: (8_000, 11_500, 15_000, 18_500)}
HISTORIES |= {1: (22_000, 36_000, 49_000, 62_000), 0: (500, 900, 1_300, 1_700)}
"""By slot: the prompt of each turn. The turn after the last is the recorded one."""


def _turns(shape: Shape) -> Part:
    """The agents' turns before: each one's whole history and more, all four at about the same time."""
    asks = []
    for slot, prompts in HISTORIES.items():
        kept = 0
        for turn, (at, prompt) in enumerate(zip(TURN_STARTS, prompts, strict=True)):
            answer = 160 + 40 * turn + 20 * slot
            asks.append(Ask(at + (3 - slot) * 1.0, slot, prompt, answer, cached=kept, limit=8192))
            kept = prompt + answer - 1
    return compose(shape, asks, TURN_SECONDS)


def agents() -> Tale:
    """Four agents in one pool; it runs out, they begin anew, and it runs out again."""
    story = load_story()
    shape = Shape(story.slots, story.slot_context, True, "four-agents.gguf")
    return Tale(
        "agents",
        f"-c {story.slot_context} -np {story.slots} -kvu: one pool that is promised to each of four agents, whose "
        "histories grow turn by turn",
        shape,
        _opening(shape),
        joined(_turns(shape), _recorded(story)),
    )


# ---- safe: every slot has what it was promised -----------------------------------------------------------------------

SAFE_SECONDS = 240.0


def safe() -> Tale:
    """A split server that always works and can never run out."""
    shape = Shape(4, 32_768, False, "safe.gguf", write_speed=25)
    asks = []
    for slot in range(4):
        at = 1.0 + 7 * slot
        for turn in range(4):
            prompt = 3_000 + (5_000 * turn + 2_700 * slot) % 24_000
            asks.append(Ask(at, slot, prompt, 600 + 130 * ((turn + slot) % 4), limit=2048))
            at += 52.0
    return Tale(
        "safe",
        "-c 131072 -np 4 --no-kv-unified: each slot has its own quarter, so nobody can take another's",
        shape,
        _opening(shape),
        compose(shape, asks, SAFE_SECONDS),
    )


# ---- sleeping: unloads its model when nobody asks --------------------------------------------------------------------

IDLE_SECONDS = 60.0
ASLEEP_SECONDS = 120.0
_LOAD_SECONDS = 4.0
_WORK_SECONDS = 20.0


def sleeping() -> Tale:
    """A server with --sleep-idle-seconds, woken by a request now and then."""
    shape = Shape(2, 16_384, False, "sleeping.gguf")
    first = joined(_opening(shape), compose(shape, [Ask(1, 1, 6_000, 180)], _WORK_SECONDS))
    awake = joined(compose(shape, [Ask(0, 1, 9_000, 200)], _WORK_SECONDS), _falls_asleep())
    return Tale(
        "sleeping",
        f"--sleep-idle-seconds {IDLE_SECONDS:g}: unloads its model when nobody asks, and loads it again for a request",
        shape,
        joined(first, _falls_asleep()),
        joined(Part(ASLEEP_SECONDS, ()), joined(_wakes(shape), awake)),
        forgets=True,
        # So that an idle minute is three seconds at least: an exporter needs half a second to hear of a request's end.
        fastest=20.0,
    )


def _falls_asleep() -> Part:
    # Its slots are gone with its model; the clients' next look at them is after it has woken.
    return Part(IDLE_SECONDS, _spread(list(dialect.FALLS_ASLEEP), IDLE_SECONDS - 0.1))


def _wakes(shape: Shape) -> Part:
    lines = (
        *_spread(list(dialect.WAKES_UP), 0.0),
        *_spread(dialect.loading(shape.model, shape.slots, shape.slot_context, shape.unified), 0.1, 1.0),
    )
    return Part(_LOAD_SECONDS, lines)


TALES = {"agents": agents, "safe": safe, "sleeping": sleeping}
"""Those that are played by a server that answers; `crashing` never gets so far (crashing.py)."""


def load_tale(name: str, pause: float = 0.0) -> Tale:
    """Make a tale. `pause`: seconds, in its own time, between the pool's end and the agents' new beginning."""
    tale = TALES[name]()
    return replace(tale, pause=pause) if name == "agents" else tale
