"""Reads one open journal in chunks: the hot path, a million entries in about two seconds.

Each entry costs the step to it, its MESSAGE and its time. Who wrote it is read only if there is a choice: a field costs
half of what the step does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from kvexporter.facts import JournalEntry, Reading, UnitEvent
from kvexporter.sources import journal_library
from kvexporter.sources.journal_library import LowLevelReader
from kvexporter.sources.split_lines import GOES_ON, SplitLines
from kvexporter.sources.systemd_messages import may_be_about_any_unit, message_starts, unit_event

CHUNK_ENTRIES = 256
"""Entries read before they are handed on; about two milliseconds' worth with what is made of them."""
CHUNK_BYTES = 1 << 20
"""Bytes of messages that end a chunk early."""

Wanted = Callable[[Sequence[bytes]], Iterable[Reading | bool | None]]
"""Sees some messages in a row. What it makes of each goes with the entry in place of the text, or the text itself if it
says True; entries of which it makes nothing are passed over."""

DAMAGED = (OSError, ValueError)
"""What the low-level reader raises for damaged entries and files."""


def always() -> float:
    """Writers are told whatever the time."""
    return -inf


@dataclass(slots=True)
class Chunk:
    """Entries read in one go, not handed on yet."""

    entries: list[JournalEntry] = field(default_factory=list)
    """Those of interest."""
    read: int = 0
    malformed: int = 0
    newest: float | None = None
    ended: bool = False
    """There were no more entries."""
    error: str | None = None
    """Why libsystemd could not go to the next entry."""


@dataclass(slots=True)
class _Writer:
    """Who wrote the last entry handed on."""

    pid_text: bytes | None = None
    """None: unknown, so equal to nobody's."""
    pid: int | None = None
    at: float = 0.0
    invocation: str | None = None


class ChunkReader:
    """Reads entries of an open, positioned journal. Never raises for a damaged entry."""

    def __init__(
        self,
        reader: LowLevelReader,
        unit: str | None,
        wanted: Wanted,
        own_pid: int | None = None,
        writers_from: Callable[[], float] = always,
    ) -> None:
        """`unit`: the one that systemd's messages must be about (None: any). `own_pid`: whose lines are passed over.

        `writers_from` is asked for each chunk: from which time on (unix seconds) the lines' writers are to be told.
        """
        self.on_unread = False
        """The journal stands on an entry that was not read yet."""
        self.split: SplitLines | None = None
        """Set: every entry's flags of split lines are looked at."""
        self._reader = reader
        self._unit = unit
        self._wanted = wanted
        self._own_pid = own_pid
        self._writers_from = writers_from
        self._own_since = time.time()
        self._starts = message_starts(unit)
        self._heads = frozenset(start[:1] for start in self._starts)
        self._last = _Writer()

    def read(self, limit: int = CHUNK_ENTRIES) -> Chunk:
        """Read entries until a chunk of at most `limit` is full or there are no more.

        First all are read, then all messages are looked at: each of the two works in the processor's caches, and by
        turns they would push each other out of them.
        """
        chunk = Chunk()
        advance, get, get_time, starts = self._reader._next, self._reader._get, self._reader._get_realtime, self._starts
        heads = self._heads
        any_unit, split, writers_from = self._unit is None, self.split, self._writers_from()
        messages: list[bytes] = []
        times: list[float] = []
        known: dict[int, JournalEntry] = {}
        size = 0
        for read in range(limit):
            if self.on_unread:
                self.on_unread = False
            else:
                try:
                    if not advance():
                        chunk.ended = True
                        break
                except DAMAGED as error:
                    chunk.error = str(error)
                    break
            chunk.read = read + 1
            continued = split is not None and split.continued(self.field)
            try:
                message = get("MESSAGE")
            except (KeyError, OSError, ValueError):
                chunk.malformed += 1
                continue
            try:
                at = get_time() / 1e6
            except DAMAGED:
                continue
            event: UnitEvent | None = None
            if (message[:1] in heads and message.startswith(starts)) or (any_unit and may_be_about_any_unit(message)):
                event = unit_event(self.field, self._unit)
            if event is not None or at >= writers_from:
                entry = self._entry(at, message, event, continued)
                if entry is None:
                    continue
                known[len(messages)] = entry
            elif continued:
                known[len(messages)] = JournalEntry(at, message, continued=True)
            size += len(message)
            messages.append(message)
            times.append(at)
            if size >= CHUNK_BYTES:
                break
        chunk.entries = self._wanted_of(messages, times, known)
        if chunk.read:
            chunk.newest = self._time()
        return chunk

    def _wanted_of(
        self, messages: list[bytes], times: list[float], known: dict[int, JournalEntry]
    ) -> list[JournalEntry]:
        """The entries of interest. `known`: by their places, what is known of some besides their text and time."""
        entries: list[JournalEntry] = []
        take = entries.append
        readings = self._wanted(messages)
        if not known:  # as in a backlog, of which a million may come
            for at, message, reading in zip(times, messages, readings, strict=True):
                if reading is True:
                    take(JournalEntry(at, message))
                elif reading:
                    take(JournalEntry(at, b"", None, None, None, False, reading))
            return entries
        for number, (at, message, reading) in enumerate(zip(times, messages, readings, strict=True)):
            entry = known.get(number) or JournalEntry(at, message)
            if entry.unit_event is not None or reading is True:
                take(entry)
            elif reading:
                take(JournalEntry(at, b"", entry.pid, entry.invocation, None, entry.continued, reading))
        return entries

    def split_flags(self) -> tuple[str, ...]:
        """The flags of split lines that occur in the files at all, whoever's lines they are.

        Reading the flags of each entry nearly doubles its cost; this question costs less than a microsecond a file.
        Asked after a chunk was read it is free of races: a line's first piece is stored before its later ones.
        """
        try:
            return tuple(name for name, values in GOES_ON.items() if values & self._reader.query_unique(name))
        except DAMAGED:
            return tuple(GOES_ON)

    def field(self, name: str) -> bytes | None:
        """A field of the current entry, None where it has none."""
        return journal_library.field(self._reader, name)

    def _entry(self, at: float, message: bytes, event: UnitEvent | None, continued: bool) -> JournalEntry | None:
        """The current entry with its writer; None when that is the exporter itself."""
        try:
            pid_text = self._reader._get("_PID")
        except (KeyError, OSError, ValueError):
            pid_text = b""
        last = self._last
        if event is None and pid_text == last.pid_text and 0.0 <= at - last.at < 1.0:
            # One process has one invocation; its number comes again, next to its last line, only after a restart of
            # the host. Reading the field costs half of what a message does.
            last.at = at
            pid, invocation = last.pid, last.invocation
        else:
            pid = int(pid_text) if pid_text.isdigit() and len(pid_text) < 12 else None
            if event is None:
                invocation = _text(self.field("_SYSTEMD_INVOCATION_ID"))
                self._last = _Writer(pid_text or None, pid, at, invocation)
            else:
                invocation = _text(self.field("INVOCATION_ID") or self.field("USER_INVOCATION_ID"))
                self._last = _Writer()
        if pid is not None and pid == self._own_pid and at >= self._own_since:
            return None
        return JournalEntry(at, message, pid, invocation, event, continued)

    def _time(self) -> float | None:
        try:
            return self._reader._get_realtime() / 1e6
        except DAMAGED:
            return None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("ascii", "replace")
