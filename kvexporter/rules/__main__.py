"""Writes the rule files into the folder given, else into the repository's alerts/: `python -m kvexporter.rules`."""

from __future__ import annotations

import sys
from pathlib import Path

from kvexporter.rules.files import files


def main(arguments: list[str]) -> None:
    """Write all rule files."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parents[2] / "alerts"
    folder.mkdir(exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
