"""Reads the journal export format (`journalctl -o export`): fields as lines, binary values behind their length."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import BinaryIO

from kvexporter.facts import JournalEntry
from kvexporter.sources.split_lines import SplitLines
from kvexporter.sources.systemd_messages import FieldGetter, unit_event

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
        b"_SYSTEMD_UNIT",
        b"_SYSTEMD_USER_UNIT",
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
        b"CONTAINER_NAME",
        b"CONTAINER_ID",
        b"CONTAINER_ID_FULL",
        b"CONTAINER_PARTIAL_MESSAGE",
    }
)


_NAME = re.compile(rb"[A-Z0-9_]{1,64}")
_BLANK = (b"\n", b"\r\n")


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
            unit=_origin(get),
        )

    def _fields(self) -> tuple[dict[bytes, bytes], bool, bool]:
        """The next entry's needed fields, whether it was sound, and whether the stream has ended."""
        fields: dict[bytes, bytes] = {}
        sound, some = True, False
        while True:
            line = self._stream.readline(MAX_VALUE)
            if not line:
                return fields, sound, True
            if line in _BLANK:
                if some:
                    return fields, sound, False
                continue  # blank lines between entries
            some = True
            name, equals, value = line.rstrip(b"\n").partition(b"=")
            if not _NAME.fullmatch(name):
                return fields, False, self._skip_entry(line)
            whole = line.endswith(b"\n") or not self._skip_line()
            try:
                kept = value if equals else self._binary(keep=name in NEEDED)
            except _OutOfStepError:
                return fields, False, self._skip_entry(line)
            if name in NEEDED:
                if kept is None or not whole:
                    sound = False
                else:
                    fields.setdefault(name, kept)

    def _skip_line(self) -> bool:
        """Drop the rest of an overlong line; True when something was dropped."""
        dropped = False
        while line := self._stream.readline(MAX_VALUE):
            dropped = True
            if line.endswith(b"\n"):
                break
        return dropped

    def _skip_entry(self, line: bytes) -> bool:
        """Drop lines up to the next blank one, where an entry may begin; True when the stream ends before."""
        while line and line not in _BLANK:
            line = self._stream.readline(MAX_VALUE)
        return not line

    def _binary(self, *, keep: bool) -> bytes | None:
        """A value behind its length; None when it is too long to keep, or not wanted.

        _OutOfStepError when the length cannot be right.
        """
        header = self._stream.read(8)
        if len(header) < 8:
            raise _OutOfStepError
        (size,) = struct.unpack("<Q", header)
        value = None
        if keep and size <= MAX_VALUE:
            value = self._stream.read(size)
            size -= len(value)
        while size and (dropped := self._stream.read(min(size, MAX_VALUE))):
            size -= len(dropped)
        if size or self._stream.read(1) != b"\n":
            raise _OutOfStepError
        return value


def _origin(get: FieldGetter) -> str | None:
    """The container or the unit that the entry is of; what the service manager says is of the unit that it names."""
    names = ["_SYSTEMD_USER_UNIT", "_SYSTEMD_UNIT"]
    if get("_PID") == b"1":
        names = ["UNIT", *names]
    elif get("_TRANSPORT") == b"driver":
        names = ["OBJECT_SYSTEMD_USER_UNIT", "OBJECT_SYSTEMD_UNIT", *names]
    elif get("_COMM") == b"systemd" and get("MESSAGE_ID") is not None:
        names = ["USER_UNIT", *names]
    else:
        names = ["CONTAINER_NAME", "CONTAINER_ID_FULL", "CONTAINER_ID", *names]
    found = next((value for name in names if (value := get(name))), None)
    return None if found is None else found.decode("utf-8", "replace")[:256]


class _OutOfStepError(Exception):
    """What was taken for a length was none, so what follows is not at the start of a field."""


def read_export(stream: BinaryIO) -> Iterator[JournalEntry]:
    """Read a stream's entries; those that cannot be read are passed over. OSError when the stream cannot be read."""
    return iter(ExportReader(stream))
