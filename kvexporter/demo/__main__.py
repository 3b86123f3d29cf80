"""`python -m kvexporter.demo`: the command `kvexporter demo`."""

from __future__ import annotations

import sys

from kvexporter.cli import run_cli

if __name__ == "__main__":
    sys.exit(run_cli(["demo", *sys.argv[1:]]))
