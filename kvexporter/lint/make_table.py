"""Writes lint's table of options anew: `python -m kvexporter.lint.make_table PATH-OF-llama-server BUILD`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kvexporter.lint.help_text import read_help, table_source

TABLE = Path(__file__).with_name("options_table.py")


def help_of(binary: Path) -> str:
    """What a llama-server prints for `--help`. Its libraries are looked for beside it."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(binary.parent)}
    done = subprocess.run([binary, "--help"], env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def main(arguments: list[str]) -> None:
    """Write the table."""
    binary, build = arguments
    TABLE.write_text(table_source(read_help(help_of(Path(binary))), build), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
