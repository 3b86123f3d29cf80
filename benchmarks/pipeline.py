"""Reads a whole journal through reader, parser and model in this process, and prints what that took, as JSON.

python -m benchmarks.pipeline FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from math import inf

from benchmarks.journal import UNIT
from benchmarks.measure import anonymous_bytes
from kvexporter.intake import LogIntake
from kvexporter.llama.log import parse_line
from kvexporter.server import Server
from kvexporter.sources.journal import JournalReader
from kvexporter.sources.journal_selection import JournalSelection


def main(folder: str) -> None:
    server = Server("bench", unit=UNIT)
    intake = LogIntake(lambda port, pid: server)
    reader = JournalReader(JournalSelection(unit=UNIT, directory=folder), parse_line, writers_from=lambda: inf)
    began, used = time.perf_counter(), time.process_time()
    reader.open(seek="head")
    read, anonymous, more = 0, 0, True
    while more:
        result = reader.drain(0.02, intake.entry)
        read, more = read + result.read, result.more
        if read % 16 == 0 or not more:
            anonymous = max(anonymous, anonymous_bytes())
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    reader.close()
    counters = server.snapshot(0.0).counters
    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu": cpu,
                "read": read,
                "matched": intake.results["matched"],
                "error_lines": counters.error_lines,
                "anonymous": anonymous,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
