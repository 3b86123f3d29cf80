"""What a replayed recording comes to, in a few lines: pools, peaks and incidents with their times. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from kvexporter.incident_words import counted, incident_words
from kvexporter.reports.findings import printable
from kvexporter.reports.pool_words import pool_words
from kvexporter.snapshot import CAUSES, ExporterSnapshot, ServerSnapshot

MOST_INCIDENTS = 20
"""Shown of each server, the latest ones."""

_CAUSE_WORDS = {"pool": "of a full pool", "slot": "of its own slot's limit"}


def replay_summary(
    snapshot: ExporterSnapshot, peaks: Mapping[str, tuple[float, float]], *, since_start: bool = False
) -> str:
    """Say for each server how its pool is cut, how full it was at most, and who died when.

    `peaks`: server → highest fill ratio and its time. `since_start`: times are seconds since the server's start.
    """
    lines = [line for server in snapshot.servers for line in _server(server, peaks, since_start)]
    if since_start:
        lines.append("Times are seconds since the server's start: a bare log tells no others.")
    return "".join(f"{printable(line)}\n" for line in lines)


def _server(server: ServerSnapshot, peaks: Mapping[str, tuple[float, float]], since_start: bool) -> Iterator[str]:
    pool = pool_words(server.geometry)
    yield f"{server.name}: {pool.text if pool is not None else 'how its pool is cut is not told'}"
    if server.name in peaks:
        ratio, at = peaks[server.name]
        yield f"  fullest at {_time(at, since_start)}: {ratio:.1%} of the pool"
    counts = [
        f"{counted(server.counters.incidents[cause], 'incident')} {_CAUSE_WORDS[cause]} "
        f"({counted(server.counters.requests_failed.get(cause, 0), 'request')} died)"
        for cause in CAUSES
        if server.counters.incidents.get(cause)
    ]
    yield f"  {', '.join(counts) if counts else 'no request died for want of context'}"
    shown = server.incidents[-MOST_INCIDENTS:]
    if len(shown) < sum(server.counters.incidents.values()):
        yield f"  the latest {len(shown)}:"
    for incident in shown:
        yield f"  {_time(incident.started, since_start)}: {incident_words(incident)}"


def _time(at: float, since_start: bool) -> str:
    if since_start:
        return f"{at:,.1f} s"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
