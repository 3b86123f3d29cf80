"""Diagnosing a long journal with the command itself, against journalctl and grep counting one thing in it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.journal import UNIT, bench_journal, grep
from benchmarks.measure import Row, children_cpu, median_of
from tests.support.paths import ROOT


def rows(*, short: bool) -> Iterator[Row]:
    """Measure it."""
    entries, rounds = (20_000, 1) if short else (1_000_000, 5)
    folder = bench_journal(entries)
    grep(folder)  # so that both find the files in the page cache
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    for _ in range(rounds):
        seconds, cpu, count = grep(folder)
        theirs.append((seconds, cpu))
        seconds, cpu, lines = _diagnose(folder)
        ours.append((seconds, cpu))
        if lines != count:
            raise RuntimeError(f"diagnose counted {lines} error lines, grep {count}")
    ratio = median_of([mine / other for (mine, _), (other, _) in zip(ours, theirs, strict=True)])
    cpu_ratio = median_of([mine / other for (_, mine), (_, other) in zip(ours, theirs, strict=True)])
    judged = None if short else ratio <= 1.0
    yield Row(f"diagnosing {entries:,} entries: time against journalctl | grep -c", f"{ratio:.2f}", "1.0", judged)
    yield Row("... CPU time against theirs together", f"{cpu_ratio:.2f}")
    yield Row("... seconds, start and report included", f"{median_of([seconds for seconds, _ in ours]):.1f}")


def _diagnose(folder: Path) -> tuple[float, float, int]:
    """(seconds, CPU seconds, error lines) of the whole command."""
    command = [sys.executable, "-m", "kvexporter", "diagnose", "--journal", str(folder), "--unit", UNIT]
    began, used = time.perf_counter(), children_cpu()
    done = subprocess.run([*command, "--format", "json"], cwd=ROOT, capture_output=True, check=False, timeout=600)
    seconds, cpu = time.perf_counter() - began, children_cpu() - used
    if done.returncode != 1:  # the journal is full of incidents
        raise RuntimeError(f"diagnose: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
    (server,) = json.loads(done.stdout)
    return seconds, cpu, int(server["counts"]["log_lines"])
