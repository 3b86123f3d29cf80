"""Scrapes of the exporter against those of node_exporter, by turns on the same machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.measure import Load, Row, Scraper, load, median_of
from tests.support.paths import ROOT, SetupMissingError, free_port, wait_for

NODE_EXPORTER = "prometheus-node-exporter"


def rows(*, short: bool) -> Iterator[Row]:
    """Measure it."""
    rounds, seconds = (1, 0.3) if short else (7, 3.0)
    commands = {"1 server with 4 slots": _ours(1, 4), "50 servers with 8 slots": _ours(50, 8)}
    if shutil.which(NODE_EXPORTER):
        commands[NODE_EXPORTER] = [NODE_EXPORTER, "--web.listen-address=127.0.0.1:{port}"]
    elif not short:
        raise SetupMissingError(NODE_EXPORTER)
    found: dict[str, list[Load]] = {name: [] for name in commands}
    with ExitStack() as stack:
        running = {name: stack.enter_context(_running(command)) for name, command in commands.items()}
        for _ in range(rounds):
            for name, (port, pid) in running.items():
                found[name].append(load(port, pid, seconds))
    for name, loads in found.items():
        rate, p99 = median_of([one.per_second for one in loads]), median_of([one.p99 for one in loads])
        cpu = median_of([one.cpu for one in loads])
        yield Row(
            f"scrape, {name}: a second; 99th percentile; CPU; compressed size",
            f"{rate:.0f}/s; {p99 * 1000:.1f} ms; {cpu * 1000:.1f} ms; {loads[0].size / 1024:.1f} KiB",
        )
    if NODE_EXPORTER in found:
        small = found["1 server with 4 slots"]
        ratio = median_of(
            [mine.per_second / theirs.per_second for mine, theirs in zip(small, found[NODE_EXPORTER], strict=True)]
        )
        yield Row(
            "scrapes a second, 1 server with 4 slots against node_exporter",
            f"{ratio:.1f} times",
            "above 1",
            None if short else ratio > 1,
        )


def _ours(servers: int, slots: int) -> list[str]:
    return [sys.executable, "-m", "benchmarks.scraped", "{port}", str(servers), str(slots)]


@contextmanager
def _running(command: list[str]) -> Iterator[tuple[int, int]]:
    """(port, process id) of a server that answers."""
    port = free_port()
    process = subprocess.Popen(
        [part.format(port=port) for part in command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def answers() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"{command} ended with exit status {process.returncode}")
        scraper = Scraper(port)
        try:
            scraper.scrape()
        except OSError:
            return False
        finally:
            scraper.close()
        return True

    try:
        wait_for(f"{command} to answer", answers)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(20)
