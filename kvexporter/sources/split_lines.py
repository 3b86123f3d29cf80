"""Which journal entries are the later pieces of a line that was split before it was stored.

journald ends a line at its LineMax= (48 KiB) or at a NUL and flags that piece with `_LINE_BREAK`; Docker and Podman cut
lines at 16 KiB and flag every piece but the last with `CONTAINER_PARTIAL_MESSAGE=true`. That a piece is a later one is
not flagged: it is the entry that follows a flagged one in the same stream.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvexporter.sources.systemd_messages import FieldGetter

LINE_BREAK = "_LINE_BREAK"
PARTIAL = "CONTAINER_PARTIAL_MESSAGE"

GOES_ON: dict[str, frozenset[bytes]] = {
    # Not "eof": nothing follows. Not "pid-change": what follows comes from another process.
    LINE_BREAK: frozenset({b"line-max", b"nul"}),
    PARTIAL: frozenset({b"true"}),
}
"""Flag field → values that say that the line goes on in the stream's next entry."""

MAX_OPEN = 64
"""Streams remembered as broken off; a writer that died in the middle of a line never closes its own."""


class SplitLines:
    """Follows the flags of one selection's entries, in order; `fields` limits which flags are looked at."""

    def __init__(self, fields: Iterable[str] = GOES_ON) -> None:
        self._fields = tuple(fields)
        self._open: dict[bytes, None] = {}

    def continued(self, get: FieldGetter) -> bool:
        """Whether this entry is a later piece. To be asked for every entry once, also for those of no interest."""
        flagged = any(get(field) in GOES_ON[field] for field in self._fields)
        if not flagged and not self._open:
            return False
        stream = _stream(get)
        continued = stream in self._open
        if flagged:
            self._open[stream] = None
            if len(self._open) > MAX_OPEN:
                del self._open[next(iter(self._open))]
        elif continued:
            del self._open[stream]
        return continued


def _stream(get: FieldGetter) -> bytes:
    """Tells apart what is split independently: standard output and standard error of each process or container."""
    container = get("CONTAINER_ID_FULL") or get("CONTAINER_ID")
    if container is not None:
        return container + b"/" + (get("PRIORITY") or b"")  # stdout and stderr differ by priority there
    return get("_STREAM_ID") or b"pid " + (get("_PID") or b"")
