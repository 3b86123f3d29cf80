"""The application as the daemon serves it, over models that a recording has filled; for the scrape benchmark.

python -m benchmarks.scraped PORT SERVERS SLOTS
"""

from __future__ import annotations

import asyncio
import sys
import time

from kvexporter.llama.log import parse_line
from kvexporter.llama.slots import SlotSample
from kvexporter.options import ListenAddress
from kvexporter.server import Server
from kvexporter.snapshot import CollectorStatus, ExporterSnapshot
from kvexporter.sources.process import ProcessReader
from kvexporter.web.app import create_app
from kvexporter.web.serve import serve
from tests.support.paths import RECORDINGS


def filled(name: str, slots: int) -> Server:
    """A server that has had the incident of the four agents, and whose slots all run a task."""
    server = Server(name, unit=f"{name}.service", url="http://127.0.0.1:8080", poll_interval=1e9)
    at = time.time()
    for line in (RECORDINGS / "replay-b11434-full" / "server.log").read_bytes().splitlines():
        parsed = parse_line(line)
        if parsed is not None and b"cleaning up before exit" not in line:
            server.line(parsed, at)
    samples = [
        SlotSample(id=n, context=262144, processing=True, task=10_000 + n, held=12_345 + n, decoded=n, remaining=100)
        for n in range(slots)
    ]
    server.slots_polled(samples, at)
    server.process_seen(ProcessReader().read(1), at)
    return server


async def main(port: int, count: int, slots: int) -> None:
    servers = [filled(f"server-{number}", slots) for number in range(count)]

    def snapshot() -> ExporterSnapshot:
        now = time.time()
        return ExporterSnapshot(
            at=now,
            servers=tuple(server.snapshot(now) for server in servers),
            collectors={"journal": CollectorStatus(True, 0.001), "process": CollectorStatus(True, 0.001)},
            journal_lines={"matched": 1, "ignored": 1, "malformed": 0},
            journal_lag=0.25,
        )

    app = create_app(snapshot, ready=lambda: True, healthy=lambda: True, reload=None, telemetry_path="/metrics")
    server = await serve(app, [ListenAddress("127.0.0.1", port)])
    try:
        await asyncio.Event().wait()
    finally:
        await server.aclose()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:4])))
