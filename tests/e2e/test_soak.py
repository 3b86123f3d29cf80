"""A long run: a busy server, an incident every few seconds, a restart of the exporter now and then; nothing grows.

KVEXPORTER_SOAK_MINUTES=60 gives the long form, with a restart every five minutes.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from kvexporter.demo.standin import create_app
from kvexporter.demo.story import load_story
from tests.support.counted_log import Writer, wait_counted
from tests.support.exporter import Exporter
from tests.support.journal_files import LiveJournalFile
from tests.support.paths import free_port, wait_for

MINUTES = float(os.environ.get("KVEXPORTER_SOAK_MINUTES", "3"))
LIVES = 12
"""Three in each quarter, so that the quarters can be compared."""
SHORT_MINUTES = 30.0
"""Below, the server's first incidents are still being gathered while memory is compared."""
TOLERANCE = 0.02 if MINUTES >= SHORT_MINUTES else 0.15
LINES_A_SECOND = 40.0


@contextmanager
def busy_server() -> Iterator[int]:
    """A server that answers as the recorded one did while it worked, over and over; its port."""
    story = load_story()
    began = time.monotonic()

    def now() -> float:
        return story.ready_at + (time.monotonic() - began) % (story.duration - story.ready_at)

    port = free_port()
    config = uvicorn.Config(create_app(story, now), port=port, log_level="critical", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for("the server to answer", lambda: server.started)
        yield port
    finally:
        server.should_exit = True
        thread.join(30)


def anonymous_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise AssertionError("no RssAnon")


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_nothing_grows_and_every_count_stays_exact_over_a_long_run(tmp_path: Path) -> None:
    life = MINUTES * 60 / LIVES
    memory: list[list[int]] = []
    files: list[list[int]] = []
    with busy_server() as port, LiveJournalFile(tmp_path / "journal") as journal:
        journal.write("the file appears with its first entry", unit="other.service")
        journal.wait_for_file()
        server = {
            "name": "s",
            "unit": journal.unit,
            "url": f"http://127.0.0.1:{port}",
            "journal": {"directory": str(journal.directory)},
        }
        with Exporter({"discovery": False, "servers": [server]}) as exporter:
            with Writer(journal.write_burst, LINES_A_SECOND, burst=10) as writer:
                began = time.monotonic()
                for number in range(LIVES):
                    if number:
                        exporter.kill() if number % 2 else exporter.stop()
                        exporter.launch()
                        exporter.wait_ready(60)
                    memory.append([])
                    files.append([])
                    while time.monotonic() < began + (number + 1) * life:
                        exporter.scrape()
                        memory[-1].append(anonymous_kib(exporter.pid))
                        files[-1].append(descriptors(exporter.pid))
                        time.sleep(1.0)
            wait_counted(exporter.scrape, writer.expected)
            assert exporter.scrape().value("llama_slots", server="s") == 4

    quarter = LIVES // 4
    second, last = (
        statistics.fmean(kib for samples in part for kib in samples)
        for part in (memory[quarter : 2 * quarter], memory[-quarter:])
    )
    print(f"memory: second quarter {second:.0f} KiB, last {last:.0f} KiB ({last / second - 1:+.2%})")
    print(f"descriptors at the end of each life: {[samples[-1] for samples in files]}")
    assert abs(last / second - 1) < TOLERANCE
    # A connection of the moment may be open or not.
    assert min(files[-1]) <= min(files[quarter]) + 1
    for samples in files:
        assert min(samples[len(samples) // 2 :]) <= min(samples[: len(samples) // 2]) + 1
