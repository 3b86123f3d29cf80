"""What the benchmarks measure with, and one row of their table."""

from __future__ import annotations

import http.client
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value, and what it should be."""

    what: str
    value: str
    goal: str = ""
    met: bool | None = None
    """None: there is no goal, or the run was too short to tell."""


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    cells = [("", "measured", "goal", "")]
    cells += [(r.what, r.value, r.goal, "" if r.met is None else "met" if r.met else "missed") for r in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of all threads it has had, to the nanosecond."""
    return time.clock_gettime((~pid << 3) | 2)  # the kernel's number of another process's CPU clock


def wakeups(pid: int) -> int:
    """How often a process's threads have gone to sleep by themselves."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for line in (thread / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                total += int(line.split()[1])
    return total


def family(pid: int) -> list[int]:
    """A process and its children."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += map(int, (task / "children").read_text().split())
    return [pid, *children]


def anonymous_bytes(pid: int | str = "self") -> int:
    """Memory of a process that belongs to no file."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this kernel does not tell RssAnon")


def children_cpu() -> float:
    """CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Scraper:
    """Scrapes as Prometheus does: over one kept connection, compressed."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def scrape(self) -> tuple[float, int]:
        """(seconds, bytes) of one scrape. Raises OSError when nobody answers."""
        began = time.perf_counter()
        try:
            self._connection.request(
                "GET",
                "/metrics",
                headers={
                    "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
                    "Accept-Encoding": "gzip",
                    "X-Prometheus-Scrape-Timeout-Seconds": "10",
                },
            )
            answer = self._connection.getresponse()
            body = answer.read()
        except (http.client.HTTPException, OSError):
            self._connection.close()
            raise
        if answer.status != 200:
            raise RuntimeError(f"/metrics: HTTP status {answer.status}")
        return time.perf_counter() - began, len(body)

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True, slots=True)
class Load:
    """What one client that asks again at once got out of a server."""

    per_second: float
    p99: float
    cpu: float
    """Seconds of the server's CPU time for one answer."""
    size: int
    """Bytes of an answer, compressed."""


def load(port: int, pid: int, seconds: float) -> Load:
    """Scrape over and over for so long."""
    scraper = Scraper(port)
    for _ in range(5):
        scraper.scrape()
    before, began = cpu_seconds(pid), time.perf_counter()
    taken: list[float] = []
    size = 0
    while time.perf_counter() - began < seconds:
        duration, size = scraper.scrape()
        taken.append(duration)
    elapsed = time.perf_counter() - began
    used = cpu_seconds(pid) - before
    scraper.close()
    return Load(len(taken) / elapsed, percentile(taken, 0.99), used / len(taken), size)


def median_of(values: Sequence[float]) -> float:
    """The median."""
    return float(median(values))
