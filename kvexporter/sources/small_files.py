"""The small files of /sys and /proc: one number or word each."""

from __future__ import annotations

from pathlib import Path


def read_text(path: Path) -> str | None:
    """The file's text without white space around it; None when it is not there or may not be read."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """The whole number in the file; None when there is none."""
    text = read_text(path)
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None
