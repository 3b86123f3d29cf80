"""What being watched costs the real llama-server: tokens a second, time to the first token, journal lines."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.measure import Row, cpu_seconds, family, median_of
from tests.support.exporter import Exporter
from tests.support.journal_files import LiveJournalFile
from tests.support.llama_server import RealLlamaServer, tokens
from tests.support.paths import RECORDINGS
from tests.support.tiny_model import BYTE_TOKENS

PROMPT, ANSWER = 256, 512


@dataclass(frozen=True, slots=True)
class Run:
    """What one client got that asked again at once."""

    tokens_per_second: float
    first_token: float
    """Median seconds until the first token came."""
    cpu: float
    """Seconds of the server's CPU time for a request."""


def rows(*, short: bool) -> Iterator[Row]:
    """Measure it."""
    pairs, seconds = (1, 1.0) if short else (40, 4.0)
    watched: list[Run] = []
    alone: list[Run] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvexporter-bench-")))
        journal = stack.enter_context(LiveJournalFile(folder))
        llama = stack.enter_context(RealLlamaServer("-np", "2", "-c", "4096", "--metrics", journal=journal))
        exporter = stack.enter_context(_exporter(llama, journal))
        _ask(llama, seconds)
        for pair in range(pairs):
            # By turns in both orders: a machine that gets slower or faster meanwhile favours neither.
            for with_exporter in (True, False) if pair % 2 else (False, True):
                if with_exporter:
                    watched.append(_ask(llama, seconds))
                    continue
                # Stopped, not ended: a start's own cost is none of what a running exporter costs.
                processes = family(exporter.pid)
                for pid in processes:
                    os.kill(pid, signal.SIGSTOP)
                try:
                    alone.append(_ask(llama, seconds))
                finally:
                    for pid in processes:
                        os.kill(pid, signal.SIGCONT)
                time.sleep(0.2)
        busy, idle = _lines(llama, 2.0 if short else 60.0)
    rate = _ratio([run.tokens_per_second for run in watched], [run.tokens_per_second for run in alone])
    first = _ratio([run.first_token for run in watched], [run.first_token for run in alone])
    cpu = _ratio([run.cpu for run in watched], [run.cpu for run in alone])
    # What the same comparison tells of runs that do not differ: below this nothing can be seen on this machine.
    halves = [run.tokens_per_second for run in alone]
    noise = abs(1 - _ratio(halves[1::2], halves[: len(halves) // 2 * 2 : 2])) if len(halves) > 1 else 0.0
    yield Row(
        f"real llama-server, tokens a second, watched against not ({pairs} pairs)",
        f"{rate:.4f}",
        "above 0.995",
        None if short else rate > 0.995,
    )
    yield Row("... the same of runs without the exporter among themselves: off by", f"{noise:.4f}")
    yield Row("... time to the first token, watched against not", f"{first:.4f}", "not above 1.005")
    yield Row("... the server's CPU time for a request, watched against not", f"{cpu:.4f}")
    yield Row("... lines in its journal by polling, an hour busy", f"{busy:.0f}")
    yield Row("... lines in its journal by polling, an hour idle", f"{idle:.0f}")
    logged, asked = _lines_of_older_build("b8635")
    each = logged / asked
    yield Row(f"b8635 logs {logged} lines for {asked} questions for its slots: an hour busy", f"{3600 * each:.0f}")
    yield Row("b8635: an hour idle (/health and /props are not logged)", "0")


def _ratio(these: list[float], those: list[float]) -> float:
    return median_of([a / b for a, b in zip(these, those, strict=True)])


def _exporter(llama: RealLlamaServer, journal: LiveJournalFile) -> Exporter:
    server = {"name": "bench", "unit": journal.unit, "url": llama.url, "journal": {"directory": str(journal.directory)}}
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
