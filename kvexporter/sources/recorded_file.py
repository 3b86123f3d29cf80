"""A recorded log or journal as a file that can be read twice, and what kind of file it looks like."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

Form = Literal["empty", "export", "json", "journal file", "text"]

_HEAD = 4096
_EXPORT = re.compile(rb"\A\s*(?:__CURSOR|__REALTIME_TIMESTAMP)=")
_JSON_FIELDS = (b'"__REALTIME_TIMESTAMP"', b'"__CURSOR"', b'"MESSAGE"')


@contextmanager
def open_recorded(path: Path) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`, at its start. What can be read only once is copied first.

    OSError when it cannot be opened or copied.
    """
    if str(path) == "-":
        with _seekable(sys.stdin.buffer) as stream:
            yield stream
    else:
        with path.open("rb") as opened, _seekable(opened) as stream:
            yield stream


@contextmanager
def _seekable(stream: BinaryIO) -> Iterator[BinaryIO]:
    if stream.seekable():
        stream.seek(0)
        yield stream
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy)
        copy.seek(0)
        yield copy


def form_of(stream: BinaryIO) -> Form:
    """What the stream's beginning looks like; it is at its start before and after."""
    head = stream.read(_HEAD)
    stream.seek(0)
    if not head.strip():
        return "empty"
    if head.startswith(b"LPKSHHRH"):
        return "journal file"
    if head.lstrip(b"\x1e \t\r\n[").startswith(b"{") and any(name in head for name in _JSON_FIELDS):
        return "json"
    return "export" if _EXPORT.match(head) else "text"
