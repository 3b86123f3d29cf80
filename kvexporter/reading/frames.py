"""Messages over a stream between two processes of the same program: a length, then a tuple of plain values."""

from __future__ import annotations

import marshal
import struct
from collections.abc import Iterator
from typing import Any

Message = tuple[Any, ...]

MOST_BYTES = 64 * 1024 * 1024
"""Of one message; what says more is no message of ours."""

_LENGTH = struct.Struct("<I")


class DamagedError(Exception):
    """What came is no message."""


def frame(message: Message) -> bytes:
    """Give the bytes of one message. Its values: None, bool, int, float, str, bytes, and tuples and lists of them."""
    body = marshal.dumps(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Cuts what arrives into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Take what has arrived; give the messages that are whole now. DamagedError ends the stream."""
        buffer = self._buffer
        buffer += data
        start, size = 0, _LENGTH.size
        try:
            while len(buffer) - start >= size:
                (length,) = _LENGTH.unpack_from(buffer, start)
                if length > MOST_BYTES:
                    raise DamagedError(f"a message of {length} bytes")
                end = start + size + length
                if len(buffer) < end:
                    break
                body = bytes(buffer[start + size : end])
                start = end
                try:
                    message = marshal.loads(body)  # noqa: S302 - of our own process, over a socket nobody else has
                except (ValueError, EOFError, TypeError) as error:
                    raise DamagedError(str(error)) from None
                if not isinstance(message, tuple):
                    raise DamagedError("no tuple")
                yield message
        finally:
            del buffer[:start]
