"""What the daemon costs while it watches one server: a busy one that is asked every second, and an idle one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import MIB, Row, anonymous_bytes, cpu_seconds, family, wakeups
from kvexporter.demo.journal_writer import UNIT, JournalFile, copy_lines
from kvexporter.demo.story import load_story
from tests.support.exporter import Exporter
from tests.support.paths import ROOT, free_port

SETTLE_SECONDS = 15.0
"""Between start and measuring: imports, discovery and the first looks are over."""


def rows(*, short: bool) -> Iterator[Row]:
    """Measure it."""
    seconds = 3.0 if short else 300.0
    settle = 2.0 if short else SETTLE_SECONDS
    story = load_story()
    for state, speed, goal in (("busy", 1.0, 0.01), ("idle", story.duration / 5.0, 0.001)):
        with _standin(speed) as (port, folder), _exporter(port, folder) as exporter:
            # The story has 5 s to end where the server is to be idle.
            time.sleep(settle if state == "busy" else settle + 5.0)
            pids = family(exporter.pid)
            used, woken, began = sum(map(cpu_seconds, pids)), sum(map(wakeups, pids)), time.monotonic()
            time.sleep(seconds)
            elapsed = time.monotonic() - began
            share = (sum(map(cpu_seconds, pids)) - used) / elapsed
            wakes = (sum(map(wakeups, pids)) - woken) / elapsed
            processing = exporter.scrape().value("llama_requests_processing", server="bench")
            if not short and bool(processing) != (state == "busy"):
                raise RuntimeError(f"the stand-in should be {state}, but {processing} requests run")
            anonymous = sum(map(anonymous_bytes, pids))
        what = f"at rest, one {state} server: share of a core over {seconds:g} s"
        yield Row(what, f"{share:.2%}", f"{goal:.1%}", None if short else share < goal)
        yield Row("... waking up a second", f"{wakes:.1f}")
        yield Row("... anonymous memory", f"{anonymous / MIB:.0f} MiB", "60 MiB", anonymous < 60 * MIB)


@contextmanager
def _standin(speed: float) -> Iterator[tuple[int, Path]]:
    """(port, journal folder) of a stand-in that tells its story and then stays idle."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="kvexporter-bench-") as folder:
        journal = JournalFile(Path(folder))
        arguments = ["--port", str(port), "--speed", str(speed), "--linger", "3600"]
        process = subprocess.Popen(
            [sys.executable, "-m", "kvexporter.demo.standin", *arguments], cwd=ROOT, stdout=subprocess.PIPE
        )
        copier = threading.Thread(target=copy_lines, args=(process.stdout, journal, process.pid))
        copier.start()
        try:
            yield port, Path(folder)
        finally:
            process.terminate()
            process.wait(20)
            copier.join(20)
            journal.close()


def _exporter(port: int, folder: Path) -> Exporter:
    server = {
        "name": "bench",
        "unit": UNIT,
        "url": f"http://127.0.0.1:{port}",
        "journal": {"directory": str(folder)},
    }
    return Exporter({"servers": [server]})
