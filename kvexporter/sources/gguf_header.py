"""The key-value pairs at the head of a GGUF file, versions 2 and 3: the model's numbers. Tensors are never read.

Of the values numbers, short texts and short lists of numbers are kept; the vocabulary is passed over.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from kvexporter.facts import GgufHeader, GgufValue

MAX_BYTES = 64 << 20
"""A header's size; the largest vocabularies take some 20 MiB."""
MAX_PAIRS = 65_536
MAX_KEY = 65_535
MAX_TEXT = 256
"""Longer texts (chat templates) are not kept."""
MAX_LIST = 4_096
"""Longer lists (the vocabulary's scores) are not kept; one number by layer is far below."""
_CHUNK = 1 << 20

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")


class HeaderError(Exception):
    """The header cannot be used; the text says why, without quoting the file."""


def read_header(file: BinaryIO, size: int) -> GgufHeader:
    """Read the header of a file of `size` bytes from its beginning. Raises HeaderError, OSError."""
    reader = _Reader(file, min(size, MAX_BYTES), cut=size > MAX_BYTES)
    if reader.take(4) != b"GGUF":
        raise HeaderError("is not a GGUF file")
    version = reader.number("I")
    if version not in (2, 3):
        if version in (2 << 24, 3 << 24):
            raise HeaderError("is a big-endian GGUF file")
        raise HeaderError(f"is a GGUF file of version {version}, and only 2 and 3 are known")
    reader.number("Q")  # tensors
    pairs = reader.number("Q")
    if pairs > MAX_PAIRS:
        raise HeaderError("claims to have more key-value pairs than any model")
    values: dict[str, GgufValue] = {}
    for _ in range(int(pairs)):
        key = reader.text(MAX_KEY)
        if key is None:
            raise HeaderError("has a key that is too long")
        value = _value(reader, int(reader.number("I")))
        if value is not None:
            values[key] = value
    return GgufHeader(int(version), values)


def _value(reader: _Reader, kind: int) -> GgufValue | None:
    """One value; None for one that is passed over."""
    if kind == _STRING:
        return reader.text(MAX_TEXT)
    if kind != _ARRAY:
        return reader.number(_letter(kind))
    kind, count = int(reader.number("I")), int(reader.number("Q"))
    if kind == _STRING:
        reader.skip_texts(count)
        return None
    letter = _letter(kind)
    if count > MAX_LIST:
        reader.skip(count * struct.calcsize("<" + letter))
        return None
    form = struct.Struct(f"<{count}{letter}")
    return form.unpack(reader.take(form.size))


def _letter(kind: int) -> str:
    letter = _NUMBERS.get(kind)
    if letter is None:  # an array of arrays too: llama.cpp has none
        raise HeaderError("has a value of an unknown type")
    return letter


class _Reader:
    """Reads forward in chunks, up to `limit` bytes; `cut`: the file itself goes on beyond that."""

    def __init__(self, file: BinaryIO, limit: int, *, cut: bool) -> None:
        self._file = file
        self._left = limit
        """Bytes that may still be read into the chunk."""
        self._cut = cut
        self._chunk = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        self._need(count)
        found = self._chunk[self._at : self._at + count]
        self._at += count
        return found

    def number(self, letter: str) -> int | float | bool:
        """The next number, by its letter of the struct module."""
        form = struct.Struct("<" + letter)
        value: int | float | bool = form.unpack(self.take(form.size))[0]
        return value

    def text(self, longest: int) -> str | None:
        """The next text; None, and passed over, if it is longer."""
        size = int(self.number("Q"))
        if size > longest:
            self.skip(size)
            return None
        return self.take(size).decode("utf-8", "replace")

    def skip(self, count: int) -> None:
        """Pass over bytes without keeping them."""
        here = len(self._chunk) - self._at
        if count <= here:
            self._at += count
            return
        beyond = count - here
        if beyond > self._left:
            self._ended()
        self._chunk, self._at = b"", 0
        self._file.seek(beyond, 1)
        self._left -= beyond

    def skip_texts(self, count: int) -> None:
        """Pass over texts: a vocabulary has half a million."""
        while count:
            self._need(8)
            chunk, at, end = self._chunk, self._at, len(self._chunk)
            while count and at + 8 <= end:
                after = at + 8 + _LENGTH.unpack_from(chunk, at)[0]
                if after > end:
                    break
                at = after
                count -= 1
            self._at = at
            if count and at + 8 <= end:  # the next one goes beyond the chunk
                self.skip(int(self.number("Q")))
                count -= 1

    def _need(self, count: int) -> None:
        """Have so many bytes in the chunk."""
        missing = count - (len(self._chunk) - self._at)
        if missing <= 0:
            return
        if missing > self._left:
            self._ended()
        read = self._file.read(min(max(missing, _CHUNK), self._left))
        self._left -= len(read)
        self._chunk, self._at = self._chunk[self._at :] + read, 0
        if len(read) < missing:
            self._ended()

    def _ended(self) -> None:
        raise HeaderError("has a header that is too large" if self._cut else "ends within its header")
