"""Reads the journal export format (`journalctl -o export`): fields as lines, binary values behind their length."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from kvexporter.facts import JournalEntry
from kvexporter.sources.split_lines import SplitLines
from kvexporter.sources.systemd_messages import unit_event

MAX_VALUE = 1 << 20
"""Bytes of a value; an entry with a longer one that is needed is malformed."""

NEEDED = frozenset(
    {
        b"__REALTIME_TIMESTAMP",
        b"_SOURCE_REALTIME_TIMESTAMP",
        b"MESSAGE",
        b"MESSAGE_ID",
        b"PRIORITY",
        b"_PID",
        b"_COMM",
        b"_TRANSPORT",
        b"_STREAM_ID",
        b"_LINE_BREAK",
        b"_SYSTEMD_INVOCATION_ID",
        b"INVOCATION_ID",
        b"USER_INVOCATION_ID",
        b"UNIT",
        b"USER_UNIT",
        b"UNIT_RESULT",
        b"OBJECT_SYSTEMD_UNIT",
        b"OBJECT_SYSTEMD_USER_UNIT",
        b"COMMAND",
        b"EXIT_CODE",
        b"EXIT_STATUS",
        b"N_RESTARTS",
        b"N_DROPPED",
        b"CONTAINER_ID",
        b"CONTAINER_ID_FULL",
        b"CONTAINER_PARTIAL_MESSAGE",
    }
)


class ExportReader:
    """Iterates over a stream's entries, whatever unit they are of; what cannot be read is counted and passed over."""

    def __init__(self, stream: BinaryIO) -> None:
        self.read = 0
        """Entries read so far."""
        self.malformed = 0
        """Entries without a message or a time, and those cut off or not in the format."""
        self._stream = stream
        self._split = SplitLines()

    def __iter__(self) -> Iterator[JournalEntry]:
        ended = False
        while not ended:
            fields, sound, ended = self._fields()
            if fields or not sound:
                self.read += 1
                entry = self._entry(fields) if sound else None
                if entry is None:
                    self.malformed += 1
                else:
                    yield entry

    def _entry(self, fields: dict[bytes, bytes]) -> JournalEntry | None:
        def get(name: str) -> bytes | None:
            return fields.get(name.encode())

        continued = self._split.continued(get)
        message = fields.get(b"MESSAGE")
        stamp = fields.get(b"__REALTIME_TIMESTAMP") or fields.get(b"_SOURCE_REALTIME_TIMESTAMP") or b""
        if message is None or not stamp.isdigit() or len(stamp) > 18:
            return None
        event = unit_event(get, None)
        pid = fields.get(b"_PID", b"")
        names = ("_SYSTEMD_INVOCATION_ID",) if event is None else ("INVOCATION_ID", "USER_INVOCATION_ID")
        invocation = next((value for name in names if (value := get(name)) is not None), None)
        return JournalEntry(
            at=int(stamp) / 1e6,
            message=message,
            pid=int(pid) if pid.isdigit() and len(pid) < 12 else None,
            invocation=None if invocation is None else invocation.decode("ascii", "replace"),
            unit_event=event,
            continued=continued,
        )

    def _fields(self) -> tuple[dict[bytes, bytes], bool, bool]:
        """The next entry's needed fields, whether it was sound, and whether the stream has ended."""
        fields: dict[bytes, bytes] = {}
        sound, some = True, False
        while True:
            line = self._stream.readline(MAX_VALUE)
            if not line:
                return fields, sound, True
            if line in (b"\n", b"\r\n"):
                if some:
                    return fields, sound, False
                continue  # blank lines between entries
            some = True
            name, equals, value = line.partition(b"=")
            if not line.endswith(b"\n"):
                sound = self._skip_line() and bool(equals) and name not in NEEDED and sound
            elif equals:
                if name in NEEDED:
                    fields.setdefault(name, value[:-1])
            else:
                binary = self._binary(keep=name[:-1] in NEEDED)
                if binary is None:
                    sound = False
                elif name[:-1] in NEEDED:
                    fields.setdefault(name[:-1], binary)

    def _skip_line(self) -> bool:
        """Drop the rest of an overlong line; False when the stream ends in it."""
        while line := self._stream.readline(MAX_VALUE):
            if line.endswith(b"\n"):
                return True
        return False

    def _binary(self, *, keep: bool) -> bytes | None:
        """A value behind its length; b"" when it is not to be kept; None when it is too long to keep, or cut off."""
        header = self._stream.read(8)
        if len(header) < 8:
            return None
        (size,) = struct.unpack("<Q", header)
        value: bytes | None = b""
        if keep and size <= MAX_VALUE:
            value = self._stream.read(size)
            if len(value) < size:
                return None
        else:
            value = None if keep else b""
            while size:
                dropped = len(self._stream.read(min(size, MAX_VALUE)))
                if not dropped:
                    return None
                size -= dropped
        return value if self._stream.read(1) == b"\n" else None


def read_export(stream: BinaryIO) -> Iterator[JournalEntry]:
    """Read a stream's entries; those that cannot be read are passed over. OSError when the stream cannot be read."""
    return iter(ExportReader(stream))
