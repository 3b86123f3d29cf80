"""Lines of a log as its keeper stores them: bare, or wrapped by a container's engine with their time.

Docker's json-file has one JSON object per line, Podman's and Kubernetes' files a time, a stream and a flag, and
`docker logs -t` a time. Both kinds of files cut lines at 16 KiB into pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

import msgspec

MAX_LINE = 64 * 1024
"""Bytes kept of a line; the rest of it is dropped."""

_DOCKER = b'{"log":"'
_STAMP = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d) (?:(stdout|stderr) ([FP]) )?",
)
_MOST_STREAMS = 8


class _DockerLine(msgspec.Struct):
    log: str
    stream: str = ""
    time: str = ""


_docker_line = msgspec.json.Decoder(_DockerLine).decode


class LineForms:
    """Unwraps the lines of one log, in order."""

    def __init__(self, pieces: Iterable[str] = ()) -> None:
        """`pieces`: streams whose last line goes on in their next one."""
        self._open: dict[str, None] = dict.fromkeys(pieces)

    @property
    def pieces(self) -> tuple[str, ...]:
        """Streams whose last line goes on in their next one."""
        return tuple(self._open)

    def take(self, raw: bytes) -> tuple[bytes, float | None, bool]:
        """Give a line's text, its time (unix seconds; None where it has none), and whether it is a later piece."""
        first = raw[:1]
        if first == b"{" and raw.startswith(_DOCKER):
            try:
                line = _docker_line(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return raw, None, False
            text = line.log.encode(errors="replace")
            return text.rstrip(b"\r\n"), stamp_time(line.time), self._piece(line.stream, more=text[-1:] != b"\n")
        if first == b"2" and (found := _STAMP.match(raw)) is not None:
            at = stamp_time(found[0].split(b" ", 1)[0].decode())
            if at is None:
                return raw, None, False
            stream = found[4]
            continued = stream is not None and self._piece(stream.decode(), more=found[5] == b"P")
            return raw[found.end() :], at, continued
        return raw, None, False

    def _piece(self, stream: str, *, more: bool) -> bool:
        continued = stream in self._open
        if more and (continued or len(self._open) < _MOST_STREAMS):
            self._open[stream[:20]] = None
        elif not more:
            self._open.pop(stream, None)
        return continued


def stamp_time(text: str) -> float | None:
    """Unix seconds of a time with its zone, as RFC 3339 has it; None of anything else."""
    found = _STAMP.fullmatch(text.encode(errors="replace") + b" ")
    if found is None:
        return None
    try:
        seconds = datetime.fromisoformat((found[1] + found[3]).decode()).timestamp()
    except ValueError:
        return None
    return seconds + float(found[2] or 0)
