"""A llama-server that never gets up: what its unit runs, and how each start ends.

First its environment file has a value without quotes, so that the shell that reads it fails with 127; the file is
mended, but then the model is not where it should be, and llama-server exits with 1.

python -m kvexporter.demo.crashing --start 0 --environment FILE
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from kvexporter.demo import dialect

SAYS = "an environment file with a value without quotes, then a model that is not there; systemd restarts it each time"
PATTERN = (127, 127, 127, 127, 1, 1, 1)
"""The exit status of each start, again and again."""

RESTART_SECONDS = 30.0
"""Between an end and the next start, in the server's own time."""

FASTEST = 20.0

MODEL = "/srv/models/missing.gguf"


def exit_status(start: int) -> int:
    """How the start of that number ends, the first being 0."""
    return PATTERN[start % len(PATTERN)]


def main(arguments: list[str] | None = None) -> int:
    """Start once, and fail."""
    parser = argparse.ArgumentParser(prog="python -m kvexporter.demo.crashing", description=__doc__)
    parser.add_argument("--start", type=int, required=True, help="how many starts were before")
    parser.add_argument("--environment", type=Path, required=True, help="environment file to write and read")
    options = parser.parse_args(arguments)
    if exit_status(options.start) == 127:
        options.environment.write_text("LLAMA_ARGS=-np 4 -c 32768\n")
        # A real shell and its real error, on standard output as a unit's are in one journal.
        os.dup2(1, 2)
        os.execvp("sh", ["sh", "-e", "-c", '. "$1"; exec llama-server $LLAMA_ARGS', "sh", str(options.environment)])  # noqa: S606
    started = time.monotonic()
    for text in dialect.missing_model(MODEL):
        print(dialect.stamped(time.monotonic() - started, text), flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
