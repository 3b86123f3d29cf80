"""The simulated runs: five ways for a shared pool to overflow, and their likes that stay within 95 % of it.

Sizes and speeds are drawn anew for each run. A run is made larger or smaller until it overflows, or until its highest
fill is what was drawn for it, and not otherwise chosen.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.lead_time_client import COMPACTED, Ask, Client
from benchmarks.lead_time_machine import Dialect, Machine
from benchmarks.lead_time_recording import Recording
from benchmarks.lead_time_server import SimulatedServer

KINDS = ("one huge prompt", "slow agents", "four equal", "late joiner", "short bursts")
HEALTHY_PEAK = (0.8, 0.95)
"""Highest fill of healthy runs."""

_LONGEST = 5400.0
_TRIES = 40


@dataclass(frozen=True, slots=True)
class Run:
    """One run and what it is to show."""

    kind: str
    overflows: bool
    recording: Recording
    origin: str = "simulated"


@dataclass(frozen=True, slots=True)
class _Draw:
    """What a run's sizes are drawn with."""

    random: random.Random
    machine: Machine
    scale: float
    overflows: bool

    def tokens(self, share: float, spread: float = 0.0) -> int:
        """A part of the pool, times the run's scale."""
        factor = math.exp(self.random.gauss(0, spread)) if spread else 1.0
        return max(16, round(self.machine.capacity * share * factor * self.scale))

    def answer(self, median: int) -> int:
        """An answer's length, which does not depend on the pool's size."""
        return max(20, min(round(median * math.exp(self.random.gauss(0, 0.7))), self.machine.capacity // 20))

    def limit(self, answer: int) -> int | None:
        """What clients ask for: no limit, the very length, or one that is far beyond it."""
        return self.random.choice((None, None, answer, 4096 + answer, 16_384 + answer))

    def seconds(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)


def simulated_runs(overflows: int, healthy: int, seed: int = 1) -> Iterator[Run]:
    """So many runs of each sort, the kinds by turns."""
    for number in range(overflows):
        yield _run(KINDS[number % len(KINDS)], True, seed * 1000 + number)
    for number in range(healthy):
        yield _run(KINDS[number % len(KINDS)], False, seed * 1000 + 500 + number)


def _run(kind: str, overflows: bool, seed: int) -> Run:
    drawn = random.Random(seed)
    capacity = drawn.choice((32_768, 65_536, 131_072, 262_144))
    dialect: Dialect = drawn.choice(("b11434", "b11434", "b8635"))
    machine = Machine(
        capacity, drawn.choice((4, 4, 4, 6)), drawn.uniform(300, 3000), drawn.uniform(8, 60), dialect
    )  # fmt: skip
    target, scale = drawn.uniform(*HEALTHY_PEAK), 1.0
    low, high = 0.0, math.inf
    for _ in range(_TRIES):
        clients = _CLIENTS[kind](_Draw(random.Random(seed), machine, scale, overflows))
        recording = SimulatedServer(machine, seed).run(clients, _LONGEST)
        if overflows:
            if recording.failed_at is not None and recording.began is not None:
                return Run(kind, True, recording)
            scale *= 1.1
            continue
        if target - 0.05 <= recording.peak <= target:
            return Run(kind, False, recording)
        if recording.peak > target:
            high = scale
        else:
            low = scale
        scale = (low + high) / 2 if math.isfinite(high) else scale * 1.3
    return _run(kind, overflows, seed + 100_000)  # the larger is not always the fuller, as timing changes too


def _agent(draw: _Draw, start: float, window: float, growth: float, *, begins: bool = False) -> Client:
    """One conversation: each turn is the last one, its answer and what a tool said; compacted near the window."""
    yield start
    system = draw.tokens(0.01, 0.3)
    history, cached = system + draw.tokens(growth, 0.5), 0
    think = draw.seconds(2, 15)
    while True:
        answer = draw.answer(200)
        if not (yield Ask(history, answer, draw.limit(answer), cached, begins)):
            return
        begins = False
        cached = history + answer
        history = cached + draw.tokens(growth, 0.7)
        if history > window:
            history, cached = system + round(0.2 * window), system
        yield draw.seconds(0.3, 1.7) * think


def _one(draw: _Draw, start: float, prompt: int, answer: int) -> Client:
    yield start
    yield Ask(max(16, prompt), answer, draw.limit(answer))


def _together(draw: _Draw) -> float:
    """What the requests of a run need together, by the pool."""
    return (draw.seconds(1.02, 1.4) if draw.overflows else 0.9) * draw.scale


def _huge(draw: _Draw) -> list[Client]:
    """Three conversations that keep within their windows, and after some time one request with a huge prompt."""
    window = 0.15 * draw.machine.capacity
    clients = [_agent(draw, draw.seconds(0, 20), window, 0.15 / draw.scale / 12) for _ in range(3)]
    prompt = (_together(draw) - 0.3) * draw.machine.capacity
    clients.append(_one(draw, draw.seconds(120, 400), round(prompt), draw.answer(400)))
    return clients


def _slow(draw: _Draw) -> list[Client]:
    """Agents with growing histories, each at its own pace, and told the whole pool or the window that is guaranteed."""
    number = draw.random.choice((3, 4, 4))
    turns = draw.seconds(15, 70)
    capacity, slots = draw.machine.capacity, draw.machine.slots
    if draw.overflows:
        # As unequal as in the incident of the four agents, whose shares were 61, 29, 9 and 1 %.
        rates = [math.exp(draw.random.gauss(0, 1.0)) for _ in range(number)]
        return [
            _agent(draw, draw.seconds(0, 30) if i else 0.0, 0.9 * capacity, rate / sum(rates) / turns, begins=i == 0)
            for i, rate in enumerate(rates)
        ]
    return [_agent(draw, draw.seconds(0, 60), COMPACTED * capacity / slots, 1 / slots / turns) for _ in range(slots)]


def _equal(draw: _Draw) -> list[Client]:
    """The same job four times at once: prompts of one size, long answers."""
    answer = draw.answer(800)
    prompt = round(_together(draw) * draw.machine.capacity / 4) - answer
    return [_one(draw, 5 + draw.seconds(0, 3) * i, prompt, answer) for i in range(4)]


def _joiner(draw: _Draw) -> list[Client]:
    """Three long requests that would fit are joined by a fourth."""
    capacity = draw.machine.capacity
    share = draw.seconds(0.55, 0.75)
    answers = [draw.answer(2500) for _ in range(3)]
    clients = [
        _one(draw, draw.seconds(0, 10), round(share * capacity / 3 * math.exp(draw.random.gauss(0, 0.1))), answer)
        for answer in answers
    ]
    prompt = (_together(draw) - share) * capacity - sum(answers)
    joins = draw.seconds(0.5, 1.2) * capacity * share / draw.machine.reading
    clients.append(_one(draw, joins, round(prompt), draw.answer(400)))
    return clients


def _burst(draw: _Draw, waits: list[float]) -> Client:
    for wait in waits:
        yield wait
        answer = draw.answer(150)
        yield Ask(draw.tokens(0.12, 0.5), answer, draw.limit(answer))


def _bursts(draw: _Draw) -> list[Client]:
    """Short requests, several at once, again and again; by chance they are large together."""
    rounds = 60
    pause = draw.seconds(3, 20)
    return [_burst(draw, [draw.seconds(0.5, 1.5) * pause for _ in range(rounds)]) for _ in range(4)]


_CLIENTS: dict[str, Callable[[_Draw], list[Client]]] = dict(
    zip(KINDS, (_huge, _slow, _equal, _joiner, _bursts), strict=True)
)
