"""A Prometheus' past, made of snapshots: as if it had scraped kvexporter at their times."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from kvexporter.metrics.exposition import exposition
from kvexporter.snapshot import ExporterSnapshot
from tests.support.prometheus import Prometheus, program

JOB, INSTANCE = "kvexporter", "gpu1.example:9889"

_SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")


def backfilled(
    directory: Path, scrapes: Iterable[tuple[float, ExporterSnapshot]], lookback: int, instance: str = INSTANCE
) -> Prometheus:
    """A Prometheus whose data are these scrapes; a context manager. Times are unix seconds, in rising order.

    A series counts as gone `lookback` seconds after its last scrape.
    """
    directory.mkdir(parents=True, exist_ok=True)
    text = directory / "scrapes.txt"
    with text.open("w", encoding="utf-8") as file:
        for at, snapshot in scrapes:
            file.writelines(f"{line} {at:.3f}\n" for line in _samples(snapshot, instance))
        file.write("# EOF\n")
    done = subprocess.run(
        [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", text, directory / "data"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text.unlink()
    shutil.rmtree(directory / "data" / "wal", ignore_errors=True)
    # What was not scraped any more is gone at once: a real Prometheus would have noted it, a backfilled one cannot.
    return Prometheus(directory, {}, options=(f"--query.lookback-delta={lookback}s",))


def _samples(snapshot: ExporterSnapshot, instance: str) -> Iterable[str]:
    for line in exposition(snapshot, "openmetrics").splitlines():
        found = _SAMPLE.fullmatch(line)
        if found is not None:
            scraped = f'job="{JOB}",instance="{instance}"'
            labels = f"{scraped},{found[2]}" if found[2] else scraped
            yield f"{found[1]}{{{labels}}} {found[3]}"
