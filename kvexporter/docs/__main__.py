"""Writes the reference documents into the folder given, else into the repository's docs/."""

from __future__ import annotations

import sys
from pathlib import Path

from kvexporter.docs.pages import PAGES


def main(arguments: list[str]) -> None:
    """Write all pages."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parents[2] / "docs"
    folder.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
