"""Catching up on a backlog: the whole pipeline against journalctl and grep, and the daemon's scrapes meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.journal import ERROR, UNIT, bench_journal
from benchmarks.measure import MIB, Row, Scraper, children_cpu, median_of, percentile
from tests.support.exporter import Exporter
from tests.support.paths import ROOT

SCRAPE_PAUSE = 0.02


def rows(*, short: bool) -> Iterator[Row]:
    """Measure it."""
    entries, rounds = (20_000, 1) if short else (1_000_000, 5)
    folder = bench_journal(entries)
    ours: list[dict[str, Any]] = []
    theirs: list[tuple[float, float]] = []
    _grep(folder)  # so that both find the files in the page cache
    for _ in range(rounds):
        seconds, cpu, count = _grep(folder)
        theirs.append((seconds, cpu))
        ours.append(_pipeline(folder))
        if ours[-1]["error_lines"] != count:
            raise RuntimeError(f"counted {ours[-1]['error_lines']} error lines, grep {count}")
    ratio = median_of([mine["seconds"] / other for mine, (other, _) in zip(ours, theirs, strict=True)])
    cpu_ratio = median_of([mine["cpu"] / other for mine, (_, other) in zip(ours, theirs, strict=True)])
    seconds = median_of([mine["seconds"] for mine in ours])
    anonymous = max(mine["anonymous"] for mine in ours)
    matched = ours[0]["matched"] / ours[0]["read"]
    judged = None if short else ratio <= 1.0
    yield Row(f"catching up on {entries:,} entries: time against journalctl | grep -c", f"{ratio:.2f}", "1.0", judged)
    yield Row("... CPU time against theirs together", f"{cpu_ratio:.2f}")
    yield Row("... entries of the unit a second", f"{ours[0]['read'] / seconds:,.0f}")
    yield Row("... share of them that says something", f"{matched:.0%}")
    yield Row("... anonymous memory", f"{anonymous / MIB:.0f} MiB", "100 MiB", anonymous < 100 * MIB)
    watch = _daemon(folder)
    p99 = percentile(watch.taken, 0.99)
    yield Row(
        f"... scrapes of the daemon meanwhile ({len(watch.taken)}): 99th percentile",
        f"{p99 * 1000:.0f} ms",
        "50 ms",
        None if short else p99 < 0.05,
    )
    yield Row("... the daemon's time, store and scrapes included", f"{watch.seconds:.1f} s")


def _grep(folder: Path) -> tuple[float, float, int]:
    """(seconds, CPU seconds, lines) of what anybody would type."""
    command = f'journalctl -u {UNIT} -o cat --directory "$0" | grep -c "{ERROR.decode()}"'
    began, used = time.perf_counter(), children_cpu()
    done = subprocess.run(["sh", "-c", command, str(folder)], capture_output=True, check=True, timeout=600)
    return time.perf_counter() - began, children_cpu() - used, int(done.stdout)


def _pipeline(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.pipeline", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=600)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@dataclass
class Watch:
    """Scrapes of the daemon while it catches up."""

    port: int
    taken: list[float] = field(default_factory=list)
    first: float | None = None
    seconds: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        scraper = Scraper(self.port)
        while not self.stop.is_set():
            try:
                duration, _ = scraper.scrape()
            except OSError:
                time.sleep(0.01)  # it does not listen yet
                continue
            if self.first is None:
                self.first = time.monotonic()
            self.taken.append(duration)
            time.sleep(SCRAPE_PAUSE)
        scraper.close()


def _daemon(folder: Path) -> Watch:
    server = {"name": "bench", "unit": UNIT, "journal": {"directory": str(folder)}}
    exporter = Exporter({"discovery": False, "servers": [server]})
    watch = Watch(exporter.port)
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        with exporter:  # which waits until all is read
            watch.seconds = time.monotonic() - (watch.first or time.monotonic())
            watch.stop.set()
            thread.join(30)
    finally:
        watch.stop.set()
        thread.join(30)
    if not watch.taken:
        raise RuntimeError("the daemon had caught up before it could be scraped")
    return watch
