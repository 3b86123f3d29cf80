"""How far a log file has been read, as text that survives restarts and rotations.

A name says nothing after a rotation, and an inode little after a copy or a compression. What stays is the content: so a
mark holds hashes of the file's first bytes and of the last ones that were read.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace

import msgspec

HEAD_BYTES = 1024
TAIL_BYTES = 256
_HASH = re.compile(r"[0-9a-f]{16}")


def digest(data: bytes) -> str:
    """A short hash: it tells files of one folder apart."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


_NOTHING = digest(b"")


@dataclass(frozen=True, slots=True)
class LogMark:
    """A place in a log file: all before it was read and handed on. Offsets are those of the unpacked file."""

    device: int
    inode: int
    """The file that the server wrote, even if it is a copy that is read."""
    offset: int = 0
    start: int = 0
    """Of the first byte that is not NUL: an emptied file whose writer goes on where it was begins with a hole."""
    head: int = 0
    """Bytes from `start` on whose hash is known: what was read of the first KiB."""
    head_hash: str = _NOTHING
    tail: int = 0
    """Bytes before `offset` whose hash is known: what was read of the last 256."""
    tail_hash: str = _NOTHING
    modified: int = 0
    """When the file was last written to, as it was read (nanoseconds since 1970)."""
    inside: bool = False
    """The place is inside a line that is too long, whose rest is to be passed over; else it is at a line's start."""
    pieces: tuple[str, ...] = ()
    """Streams of a container whose last line goes on in their next entry."""

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        return self.device, self.inode

    @property
    def known(self) -> int:
        """Bytes before the place that are read again with what follows, so that both can be compared and extended."""
        return self.tail if self.head == HEAD_BYTES else self.head

    def continues(self, data: bytes) -> bool:
        """Whether the first `known` bytes of `data` are those before this place."""
        before = data[: self.known]
        return len(before) == self.known and digest(before[self.known - self.tail :]) == self.tail_hash

    def after(self, data: bytes, modified: int) -> LogMark:
        """The place behind `data`, whose first `known` bytes are those before this one."""
        whole = self.head < HEAD_BYTES  # then the data begin at `start`
        head = min(HEAD_BYTES, len(data)) if whole else self.head
        tail = min(TAIL_BYTES, len(data))
        return replace(
            self,
            offset=self.offset + len(data) - self.known,
            head=head,
            head_hash=digest(data[:head]) if whole else self.head_hash,
            tail=tail,
            tail_hash=digest(data[len(data) - tail :]),
            modified=modified,
        )


def parse_log_mark(text: str) -> LogMark:
    """Read what str(LogMark) gave. ValueError when it is nothing of the kind."""
    try:
        mark = msgspec.json.decode(text, type=LogMark)
    except msgspec.DecodeError as error:
        raise ValueError(f"not a position in a log file: {error}") from None
    read = mark.offset - mark.start
    fits = mark.start >= 0 <= read and (mark.head, mark.tail) == (min(HEAD_BYTES, read), min(TAIL_BYTES, read))
    if not fits or not (_HASH.fullmatch(mark.head_hash) and _HASH.fullmatch(mark.tail_hash)):
        raise ValueError("not a position in a log file: its numbers do not fit together")
    return mark
