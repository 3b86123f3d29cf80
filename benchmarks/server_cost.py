"""What being watched costs the real llama-server: tokens a second, time to the first token, journal lines.

Runs of one kind differ among themselves by more than the half percent that is asked about. So it is also
asked twenty times as often, by four exporters five times a second: a twentieth of what that takes is what one takes.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.measure import Row, cpu_seconds, family, median_of
from tests.support.exporter import Exporter
from tests.support.journal_files import LiveJournalFile
from tests.support.llama_server import RealLlamaServer, tokens
from tests.support.paths import RECORDINGS
from tests.support.tiny_model import BYTE_TOKENS

PROMPT, ANSWER = 256, 512
EXPORTERS, OFTENER = 4, 5
FASTER = EXPORTERS * OFTENER
"""Questions for one of the real exporter's."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one client got that asked again at once."""

    tokens_per_second: float
    first_token: float
    """Median seconds until the first token came."""
    cpu: float
    """Seconds of the server's CPU time for a request."""


@dataclass(slots=True)
class Runs:
    """Runs of one kind, in the order of time."""

    runs: list[Run] = field(default_factory=list)

    @property
    def speeds(self) -> list[float]:
        return [run.tokens_per_second for run in self.runs]

    @property
    def firsts(self) -> list[float]:
        return [run.first_token for run in self.runs]

    @property
    def cpu(self) -> list[float]:
        return [run.cpu for run in self.runs]


def rows(*, short: bool) -> Iterator[Row]:
    """Measure it."""
    rounds, seconds = (1, 1.0) if short else (40, 4.0)
    alone, watched, harder = Runs(), Runs(), Runs()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvexporter-bench-")))
        journal = stack.enter_context(LiveJournalFile(folder))
        llama = stack.enter_context(RealLlamaServer("-np", "2", "-c", "4096", "--metrics", journal=journal))
        exporter = stack.enter_context(_exporter(llama, journal, 1.0))
        fast = [stack.enter_context(_exporter(llama, journal, 1.0 / OFTENER)) for _ in range(EXPORTERS)]
        _ask(llama, seconds)
        for turn in range(rounds):
            kinds: list[tuple[Runs, list[Exporter]]] = [(alone, []), (watched, [exporter]), (harder, fast)]
            # In all orders by turns: a machine that gets slower or faster meanwhile favours none.
            kinds = kinds[turn % 3 :] + kinds[: turn % 3]
            for into, at_work in kinds if turn % 2 else reversed(kinds):
                with _stopped(each for each in (exporter, *fast) if each not in at_work):
                    into.runs.append(_ask(llama, seconds))
        with _stopped(fast):
            busy, idle = _lines(llama, 2.0 if short else 60.0)
    yield from _table(alone, watched, harder, judged=not short)
    yield Row("... lines in its journal by polling, an hour busy", f"{busy:.0f}")
    yield Row("... lines in its journal by polling, an hour idle", f"{idle:.0f}")
    logged, asked = _lines_of_older_build("b8635")
    each = logged / asked
    yield Row(f"b8635 logs {logged} lines for {asked} questions for its slots: an hour busy", f"{3600 * each:.0f}")
    yield Row("b8635: an hour idle (/health and /props are not logged)", "0")


def _table(alone: Runs, watched: Runs, harder: Runs, *, judged: bool) -> Iterator[Row]:
    rate, first = _ratio(harder.speeds, alone.speeds), _ratio(harder.firsts, alone.firsts)
    loss, delay = (1 - rate) / FASTER, (first - 1) / FASTER
    speeds = alone.speeds
    (slowest, fastest), (soonest, latest) = _between(harder.speeds, speeds), _between(harder.firsts, alone.firsts)
    yield Row(
        f"real llama-server, asked {FASTER} times a second against not at all ({len(speeds)} rounds): tokens a second",
        f"{rate:.4f} (95 %: {slowest:.4f} to {fastest:.4f})",
    )
    yield Row(
        f"... so tokens a second lost to one question a second (a {FASTER}th)",
        f"{loss:.2%} (95 %: {(1 - fastest) / FASTER:.2%} to {(1 - slowest) / FASTER:.2%})",
        "under 0.5%",
        (1 - slowest) / FASTER < 0.005 if judged else None,
    )
    yield Row(
        f"... time to the first token, asked {FASTER} times a second against not at all",
        f"{first:.4f} (95 %: {soonest:.4f} to {latest:.4f}) of {1000 * median_of(alone.firsts):.1f} ms",
    )
    yield Row(
        f"... so time to the first token lost to one question a second (a {FASTER}th)",
        f"{delay:.2%} (95 %: {(soonest - 1) / FASTER:.2%} to {(latest - 1) / FASTER:.2%})",
        "under 0.5%",
        (latest - 1) / FASTER < 0.005 if judged else None,
    )
    yield Row("... asked once a second against not at all: tokens a second", f"{_ratio(watched.speeds, speeds):.4f}")
    yield Row("... time to the first token", f"{_ratio(watched.firsts, alone.firsts):.4f}")
    yield Row("... the server's CPU time for a request", f"{_ratio(watched.cpu, alone.cpu):.4f}")


def _ratio(these: list[float], those: list[float]) -> float:
    return median_of([a / b for a, b in zip(these, those, strict=True)])


def _between(these: list[float], those: list[float]) -> tuple[float, float]:
    """Between which ratios the median of all that could have been measured lies, 95 times of 100 (by ranks)."""
    ratios = sorted(a / b for a, b in zip(these, those, strict=True))
    half = 0.98 * math.sqrt(len(ratios))
    low = max(0, math.floor(len(ratios) / 2 - half))
    high = min(len(ratios) - 1, math.ceil(len(ratios) / 2 + half) - 1)
    return ratios[low], ratios[high]


@contextmanager
def _stopped(exporters: Iterable[Exporter]) -> Iterator[None]:
    """Stopped, not ended: a start's own cost is none of what a running exporter costs."""
    processes = [pid for exporter in exporters for pid in family(exporter.pid)]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)


def _exporter(llama: RealLlamaServer, journal: LiveJournalFile, interval: float) -> Exporter:
    server = {
        "name": "bench",
        "unit": journal.unit,
        "url": llama.url,
        "journal": {"directory": str(journal.directory)},
        "poll_interval": f"{round(interval * 1000)}ms",
    }
    return Exporter({"discovery": False, "servers": [server]})


def _ask(llama: RealLlamaServer, seconds: float) -> Run:
    """Ask by turns for one token and for a long answer, over and over."""
    first: list[float] = []
    writing = 0.0
    seed = 0
    used, began = cpu_seconds(llama.pid), time.perf_counter()
    # llama-server closes a connection after so many requests, without saying so.
    with httpx.Client(timeout=120, trust_env=False, headers={"Connection": "close"}) as client:
        while not seed or time.perf_counter() - began < seconds:
            seed += 1
            first.append(_request(client, llama.url, 1, seed))
            writing += _request(client, llama.url, ANSWER, seed)
    return Run(seed * ANSWER / writing, median_of(first), (cpu_seconds(llama.pid) - used) / seed)


def _request(client: httpx.Client, url: str, answer: int, seed: int) -> float:
    """Seconds until an answer of so many tokens was there."""
    request = {
        "prompt": tokens(PROMPT, seed),
        "n_predict": answer,
        "ignore_eos": True,
        "logit_bias": [[token, False] for token in BYTE_TOKENS],
        "cache_prompt": False,
        "seed": seed,
    }
    began = time.perf_counter()
    client.post(f"{url}/completion", json=request).raise_for_status()
    return time.perf_counter() - began


def _lines(llama: RealLlamaServer, seconds: float) -> tuple[float, float]:
    """(lines an hour that name a polled path while busy, lines an hour of any kind while idle)."""
    before = llama.log().count("GET /")
    _ask(llama, seconds)
    busy = llama.log().count("GET /") - before
    time.sleep(3.0)  # the look after the last task is over
    before = len(llama.log().splitlines())
    time.sleep(seconds)
    idle = len(llama.log().splitlines()) - before
    return busy * 3600 / seconds, idle * 3600 / seconds


def _lines_of_older_build(build: str) -> tuple[int, int]:
    """(lines with a polled path in the build's log, times that /slots was asked for) in its recordings."""
    logged = asked = 0
    for folder in (*sorted((RECORDINGS / build).iterdir()), RECORDINGS / f"agents-{build}"):
        logged += len(re.findall(rb"GET /(?:slots|metrics|props|health)", (folder / "server.log").read_bytes()))
        polls = [json.loads(line) for line in (folder / "polls.jsonl").read_bytes().splitlines()]
        asked += sum("/slots" in poll for poll in polls)
        if (folder / "endpoints.json").exists():
            asked += "/slots" in json.loads((folder / "endpoints.json").read_bytes())
    return logged, asked
