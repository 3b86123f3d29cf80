"""Lines of a plain log file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kvexporter.sources.log_lines import MAX_LINE


def read_log_file(source: Path | BinaryIO | None) -> Iterator[bytes]:
    """Read lines without their ends, at most 64 KiB of each. `-` or None: standard input.

    OSError when the file cannot be opened or read.
    """
    if source is None or source == Path("-"):
        yield from _lines(sys.stdin.buffer)
    elif isinstance(source, Path):
        with source.open("rb") as stream:
            yield from _lines(stream)
    else:
        yield from _lines(source)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    while line := stream.readline(MAX_LINE):
        rest = line
        while not rest.endswith(b"\n") and rest:
            rest = stream.readline(MAX_LINE)
        yield line.rstrip(b"\r\n")
