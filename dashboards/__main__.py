"""Writes all dashboards into the folder given, else into this one."""

from __future__ import annotations

import sys
from pathlib import Path

from dashboards.files import FILES


def main(arguments: list[str]) -> None:
    """Write the files."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parent
    folder.mkdir(exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text(), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
