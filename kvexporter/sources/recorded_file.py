"""A recorded log or journal as a file that can be read twice, and what kind of file it looks like."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from kvexporter.sources.recording import RecordingError

Form = Literal["empty", "export", "json", "journal file", "text"]

MOST_COPIED = 16 << 30
"""Bytes that are copied of what can be read only once; a few KiB can be unpacked to any number."""
_CHUNK = 1 << 20
_HEAD = 4096
_EXPORT = re.compile(rb"\A\s*(?:__CURSOR|__REALTIME_TIMESTAMP)=")
_JSON_FIELDS = (b'"__REALTIME_TIMESTAMP"', b'"__CURSOR"', b'"MESSAGE"')


@contextmanager
def open_recorded(path: Path) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`, at its start. What can be read only once is copied first.

    OSError when it cannot be opened or copied, RecordingError when it is too much to be copied.
    """
    if str(path) == "-":
        with _seekable(sys.stdin.buffer, "standard input") as stream:
            yield stream
    else:
        with path.open("rb") as opened, _seekable(opened, str(path)) as stream:
            yield stream


@contextmanager
def _seekable(stream: BinaryIO, name: str) -> Iterator[BinaryIO]:
    if stream.seekable():
        stream.seek(0)
        yield stream
        return
    folder = _folder()
    with tempfile.TemporaryFile(dir=folder) as copy:
        _copy(stream, copy, name, folder)
        copy.seek(0)
        yield copy


def _folder() -> str:
    """Where the copy is kept: what is there is deleted with its last descriptor."""
    # /tmp is the machine's memory on many hosts, of which a llama-server has none to spare.
    chosen = os.environ.get("TMPDIR") or "/var/tmp"  # noqa: S108 - the file in it has no name
    return chosen if os.access(chosen, os.W_OK | os.X_OK) else tempfile.gettempdir()


def _copy(stream: BinaryIO, copy: BinaryIO, name: str, folder: str) -> None:
    left = most = min(MOST_COPIED, _free_bytes(copy) // 2)
    while chunk := stream.read(_CHUNK):
        left -= len(chunk)
        if left < 0:
            why = "" if most == MOST_COPIED else f", half of what is free in {folder} (TMPDIR names another folder)"
            raise RecordingError(
                f"{name} is read twice, so it is copied first, and it is more than {most >> 20:,} MiB{why}: "
                "write it into a file and give that one's name, or give a part of it"
            )
        copy.write(chunk)


def _free_bytes(file: BinaryIO) -> int:
    status = os.fstatvfs(file.fileno())
    return status.f_bavail * status.f_frsize


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
