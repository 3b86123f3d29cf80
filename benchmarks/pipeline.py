"""Reads a whole journal as the daemon does, in two processes, and prints what that took, as JSON.

python -m benchmarks.pipeline FOLDER
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from math import inf

from benchmarks.journal import UNIT
from benchmarks.measure import anonymous_bytes
from kvexporter.follower import JournalFollower
from kvexporter.intake import LogIntake
from kvexporter.reading.link import ReadingLink
from kvexporter.server import Server
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.turns import Turns

_LOOK_SECONDS = 0.005
_TICK_LOOKS = 100


def main(folder: str) -> None:
    """Read it, from the start of the reading process to the last entry's count."""
    asyncio.run(_main(folder))


async def _main(folder: str) -> None:
    server = Server("bench", unit=UNIT)
    intake = LogIntake(lambda port, pid: server)
    link = ReadingLink(Turns())
    selection = JournalSelection(unit=UNIT, directory=folder)
    follower = JournalFollower(selection, link, intake.entry, writers_from=lambda: inf)
    began, used = time.perf_counter(), time.process_time()
    follower.start_after(None, 0, head=True)
    follower.poke()
    looks = anonymous = 0
    while follower.read_until == 0.0:
        if looks % _TICK_LOOKS == 0:
            server.tick(time.time(), quiet=time.time() - follower.read_until)
        await asyncio.sleep(_LOOK_SECONDS)
        looks += 1
        if looks % 20 == 0:
            anonymous = max(anonymous, anonymous_bytes() + anonymous_bytes(link.pid or 0))
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    follower.close()
    await link.aclose()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    counters = server.snapshot(0.0).counters
    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu": cpu + children.ru_utime + children.ru_stime,
                "read": follower.lines.total() + intake.results.total(),
                "matched": intake.results["matched"],
                "error_lines": counters.error_lines,
                "anonymous": anonymous,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
