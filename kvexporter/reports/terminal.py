"""Where reports for people go: a terminal with its colours and width, or plain text of 80 columns."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

from rich.console import Console

PLAIN_WIDTH = 80
MOST_WIDTH = 120
"""Wider lines are hard to read."""


def show(write: Callable[[Console], None]) -> None:
    """Have a report written to standard output. `NO_COLOR` is honoured."""
    if sys.stdout.isatty():
        width = Console().width
        write(Console(highlight=False, width=min(width, MOST_WIDTH)))
        return
    text = plain(write).encode(sys.stdout.encoding or "utf-8", "replace")
    sys.stdout.flush()
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def plain(write: Callable[[Console], None], width: int = PLAIN_WIDTH) -> str:
    """The report as text without any colour, and without spaces at the lines' ends."""
    file = io.StringIO()
    write(Console(file=file, width=width, force_terminal=False, color_system=None, highlight=False))
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())
