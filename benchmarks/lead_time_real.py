"""Real overflows: llama-server b11434 with the tiny test model, five kinds of clients, its log and /slots recorded.

The tiny model fills a small pool in seconds, where a real one takes minutes. So what was recorded is stretched in time:
one real second counts as STRETCH. The log's own rules (progress only after three seconds of reading, an answer's length
every three seconds) are not, so it tells less than it would of a slow model.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import cast

import httpx

from benchmarks.lead_time_client import COMPACTED
from benchmarks.lead_time_recording import Fact, Recording
from benchmarks.lead_time_runs import KINDS, Run
from tests.support.journal_files import LiveJournalFile
from tests.support.llama_server import RealLlamaServer, tokens

STRETCH = 10.0
POLL = 1.0 / STRETCH
CAPACITY = 24_576
SLOTS = 4
_LONGEST = 120.0
"""Real seconds after which a run that has not overflowed is given up."""


@dataclass(slots=True)
class _Recorder:
    """What the server says, with times, and what its clients got."""

    began: float = field(default_factory=time.monotonic)
    facts: list[Fact] = field(default_factory=list)
    sizes: list[tuple[float, int]] = field(default_factory=list)
    """When a request was sent (tokens that it will need) or was answered (the same, less)."""
    first_sent: float | None = None
    beyond_window: float | None = None
    failed: float | None = None
    over: threading.Event = field(default_factory=threading.Event)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> float:
        """Stretched seconds since the start."""
        return (time.monotonic() - self.began) * STRETCH

    def write(self, message: bytes, *, pid: int) -> None:
        """Take a line of the log, as a journal does."""
        self.facts.append(Fact(self.now(), message))

    def poll(self, url: str) -> None:
        """Ask for the slots again and again, once a stretched second."""
        with httpx.Client(trust_env=False, timeout=30) as client:
            while not self.over.wait(POLL):
                asked = self.now()
                try:
                    answer = client.get(f"{url}/slots")
                except httpx.TransportError:
                    continue
                if answer.status_code == 200:
                    self.facts.append(Fact(self.now(), answer.content, asked))

    def ask(self, server: RealLlamaServer, prompt: list[int], answer: int) -> bool:
        """One request; whether it was answered."""
        if self.over.is_set():
            return False
        size = len(prompt) + answer
        with self._guard:
            self.first_sent = self.first_sent if self.first_sent is not None else self.now()
            self.sizes.append((self.now(), size))
            if len(prompt) > COMPACTED * CAPACITY / SLOTS and self.beyond_window is None:
                self.beyond_window = self.now()
        status = server.complete(prompt, answer).status
        with self._guard:
            if status == 200:
                self.sizes.append((self.now(), -size))
            elif self.failed is None:
                self.failed = self.now()
                self.over.set()
        return status == 200

    def pause(self, seconds: float) -> None:
        """Wait so many stretched seconds, unless all is over."""
        self.over.wait(seconds / STRETCH)

    def inevitable(self) -> float:
        """Since when the requests sent needed more than the pool."""
        needed, since = 0, None
        for at, size in sorted(self.sizes):
            if self.failed is not None and at >= self.failed:
                break
            needed += size
            since = None if needed <= CAPACITY else since if since is not None else at
        return since if since is not None else self.failed or 0.0


Job = Callable[[], None]


def real_runs(number: int, seed: int = 1) -> Iterator[Run]:
    """So many overflows of the real server, the kinds by turns."""
    for index in range(number):
        kind = KINDS[index % len(KINDS)]
        yield Run(kind, True, _record(kind, random.Random(seed * 100 + index)), "real")


def _record(kind: str, drawn: random.Random) -> Recording:
    recorder = _Recorder()
    journal = cast(LiveJournalFile, recorder)  # all that the server asks of it is to write lines
    with RealLlamaServer("-c", str(CAPACITY), "-np", str(SLOTS), "-kvu", journal=journal) as server:
        poller = threading.Thread(target=recorder.poll, args=(server.url,))
        poller.start()
        timer = threading.Timer(_LONGEST, recorder.over.set)
        timer.start()
        try:
            jobs = _JOBS[kind](recorder, server, drawn)
            with ThreadPoolExecutor(len(jobs)) as clients:
                for done in [clients.submit(job) for job in jobs]:
                    done.result()
        finally:
            timer.cancel()
            recorder.over.set()
            poller.join()
    if recorder.failed is None:
        raise RuntimeError(f"{kind}: the real server has not overflowed within {_LONGEST:g} s")
    began = recorder.first_sent if kind == "slow agents" else recorder.inevitable()
    facts = sorted(recorder.facts, key=lambda fact: fact.at)
    return Recording(facts, began, recorder.failed, recorder.failed, 1.0, recorder.beyond_window)


def _agent(
    recorder: _Recorder, server: RealLlamaServer, seed: int, growth: int, window: int = CAPACITY, start: float = 0.0
) -> Job:
    def job() -> None:
        drawn = random.Random(seed)
        recorder.pause(start)
        history = tokens(300, seed)
        while not recorder.over.is_set():
            answer = drawn.randint(40, 120)
            if not recorder.ask(server, history, answer):
                return
            history = history + tokens(answer + round(growth * drawn.uniform(0.5, 1.5)), drawn.randint(1, 10**6))
            if len(history) > window:
                history = history[:500]
            recorder.pause(drawn.uniform(2, 10))

    return job


def _one(recorder: _Recorder, server: RealLlamaServer, seed: int, prompt: int, answer: int, start: float) -> Job:
    def job() -> None:
        recorder.pause(start)
        recorder.ask(server, tokens(prompt, seed), answer)

    return job


def _huge(recorder: _Recorder, server: RealLlamaServer, drawn: random.Random) -> list[Job]:
    agents = [_agent(recorder, server, drawn.randint(1, 10**6), 300, window=2000) for _ in range(3)]
    prompt = round(CAPACITY * drawn.uniform(0.9, 0.97))
    return [*agents, _one(recorder, server, drawn.randint(1, 10**6), prompt, 2000, drawn.uniform(60, 100))]


def _slow(recorder: _Recorder, server: RealLlamaServer, drawn: random.Random) -> list[Job]:
    return [_agent(recorder, server, drawn.randint(1, 10**6), growth) for growth in (drawn.randint(350, 500), 200, 90)]


def _equal(recorder: _Recorder, server: RealLlamaServer, drawn: random.Random) -> list[Job]:
    prompt = round(CAPACITY * drawn.uniform(0.22, 0.27))
    return [_one(recorder, server, drawn.randint(1, 10**6), prompt, 2500, 5.0 * i) for i in range(4)]


def _joiner(recorder: _Recorder, server: RealLlamaServer, drawn: random.Random) -> list[Job]:
    prompt = round(CAPACITY * drawn.uniform(0.15, 0.19))
    long = [_one(recorder, server, drawn.randint(1, 10**6), prompt, 1500, 0.0) for _ in range(3)]
    joiner = round(CAPACITY * drawn.uniform(0.4, 0.5))
    return [*long, _one(recorder, server, drawn.randint(1, 10**6), joiner, 500, drawn.uniform(20, 40))]


def _bursts(recorder: _Recorder, server: RealLlamaServer, drawn: random.Random) -> list[Job]:
    def burst(seed: int) -> Job:
        def job() -> None:
            own = random.Random(seed)
            while not recorder.over.is_set():
                prompt = min(CAPACITY * 3 // 4, round(CAPACITY * 0.18 * own.lognormvariate(0, 0.5)))
                if not recorder.ask(server, tokens(prompt, own.randint(1, 10**6)), own.randint(60, 250)):
                    return
                recorder.pause(own.uniform(3, 20))

        return job

    return [burst(drawn.randint(1, 10**6)) for _ in range(4)]


_JOBS: dict[str, Callable[[_Recorder, RealLlamaServer, random.Random], list[Job]]] = dict(
    zip(KINDS, (_huge, _slow, _equal, _joiner, _bursts), strict=True)
)
