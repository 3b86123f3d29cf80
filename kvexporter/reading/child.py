"""The reading process: opens journals and other logs as told, reads them in slices by turns, sends what they say.

It decides nothing: where to start, when to give up and what a line means for a server is the daemon's. It ends when
the daemon's end of the socket is closed.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from kvexporter.facts import JournalEntry
from kvexporter.paces import until_next
from kvexporter.reading.batch import Batch, pack
from kvexporter.reading.frames import Frames, Message, frame
from kvexporter.reading.readers import LogReader, log_reader
from kvexporter.reading.whereabouts import Whereabouts
from kvexporter.sources.drain import WAITING, DrainResult
from kvexporter.sources.journal_library import JournalUnavailableError
from kvexporter.sources.log_selection import unpack_selection

SLICE_SECONDS = 0.005
"""A batch is what is read in this time: counting it holds up a scrape for about as long."""
WORD_ROUNDS, WORD_SECONDS = 3.8, 10.0
"""Between two words that all has been read, where there is nothing else to say: times the pace, and at most."""
UNANNOUNCED_SECONDS = 15.0
"""A journal on a network's disk, which announces nothing of what others write, is tried so often at least."""
CHECK_SECONDS = 10.0
"""Between two looks whether files have come that libsystemd does not see."""
_CHUNK = 65536


@dataclass(slots=True)
class _Journal:
    """One journal, or another log, that is read."""

    number: int
    reader: LogReader
    writers_from: float
    descriptor: int | None = None
    entries: list[JournalEntry] = field(default_factory=list)
    told_at: float = 0.0
    """When the daemon was told last how far reading is (monotonic) …"""
    told_complete: bool = False
    """… and whether that all has been read."""
    announced: bool = True
    """Its descriptor tells when it changes."""
    failure: str | None = None
    checked: float = 0.0


class ReadingProcess:
    """Serves one daemon over `sock`, which sees in `whereabouts` where this process hangs, if it does."""

    def __init__(self, sock: socket.socket, whereabouts: Whereabouts) -> None:
        self._sock = sock
        self._whereabouts = whereabouts
        self._frames = Frames()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._journals: dict[int, _Journal] = {}
        self._unread: dict[int, None] = {}
        self._descriptors: dict[int, int] = {}
        """Descriptor → journal."""
        self._pace = 1.0
        self._next = 0.0
        """When all journals are tried next, announced or not (monotonic)."""

    def run(self) -> None:
        """Serve until the other end is closed."""
        try:
            while self._turn():
                pass
        except (BrokenPipeError, ConnectionResetError):
            pass

    def _turn(self) -> bool:
        now = time.monotonic()
        if now >= self._next:
            self._unread.update(dict.fromkeys(self._journals))
            # With the daemon's own steps: a processor that may sleep otherwise is woken once for both.
            self._next = now + until_next(self._longest(), now)
        wait = 0.0 if self._unread else self._next - now
        for descriptor, _ in self._poll.poll(max(0.0, wait) * 1000):
            if descriptor == self._sock.fileno():
                data = self._sock.recv(_CHUNK)
                if not data:
                    return False
                for message in self._frames.feed(data):
                    self._obey(message)
            elif descriptor in self._descriptors:
                # At once: a file that was rotated may be vacuumed in the next moment.
                self._unread[self._descriptors[descriptor]] = None
        if self._unread:
            number = next(iter(self._unread))
            del self._unread[number]
            journal = self._journals.get(number)
            if journal is not None:
                with self._whereabouts.at(number):
                    self._read(journal)
        return True

    def _longest(self) -> float:
        """How long no journal is tried at most."""
        told = all(journal.announced for journal in self._journals.values())
        return self._pace if told else min(self._pace, UNANNOUNCED_SECONDS)

    # ---- what the daemon says ----------------------------------------------------------------------------------

    def _obey(self, message: Message) -> None:
        match message:
            case ("open", int(number), selection, position, seek, int(own_pid), float(writers_from)):
                with self._whereabouts.at(number):
                    self._open(number, selection, position, seek, own_pid, writers_from)
            case ("writers", int(number), float(writers_from)):
                if number in self._journals:
                    self._journals[number].writers_from = writers_from
            case ("pace", float(pace)):
                self._pace = pace
                self._next = min(self._next, time.monotonic() + pace)
            case ("read", int(number)):
                self._unread[number] = None
            case ("close", int(number)):
                with self._whereabouts.at(number):
                    self._close(number)
            case _:
                raise ValueError("an unknown message")

    def _open(self, number: int, selection: Any, position: Any, seek: Any, own_pid: int, writers_from: float) -> None:
        reader = log_reader(unpack_selection(selection), own_pid=own_pid, writers_from=lambda: journal.writers_from)
        journal = _Journal(number, reader, writers_from, checked=time.monotonic())
        try:
            start = reader.open(position, seek=seek)
        except (JournalUnavailableError, OSError, ValueError) as error:
            reader.close()
            self._send(("failed", number, str(error)))
            return
        self._journals[number] = journal
        self._listen(journal)
        self._send(("opened", number, start.kind == "gap"))
        self._unread[number] = None

    def _close(self, number: int) -> None:
        journal = self._journals.pop(number, None)
        if journal is not None:
            self._deafen(journal)
            journal.reader.close()

    # ---- reading -----------------------------------------------------------------------------------------------

    def _read(self, journal: _Journal) -> None:
        reader = journal.reader
        began, moment = time.monotonic(), time.time()
        if began - journal.checked >= CHECK_SECONDS:
            journal.checked = began
            if reader.stale_check():
                self._listen(journal)
        try:
            result = reader.drain(SLICE_SECONDS, journal.entries.append)
        except JournalUnavailableError as error:
            self._close(journal.number)
            self._send(("failed", journal.number, str(error)))
            return
        if result.reopened:
            self._listen(journal)
        if result.failure is not None:
            self._deafen(journal)
        if result.more:
            self._unread[journal.number] = None
        self._tell(journal, result, moment, time.monotonic() - began)

    def _tell(self, journal: _Journal, result: DrainResult, moment: float, duration: float) -> None:
        """Send what was read; when there was nothing, only now and then that all has been read."""
        entries, journal.entries = journal.entries, []
        now = time.monotonic()
        failure = journal.failure or WAITING if result.failure == WAITING else result.failure
        # A slice may end with the last entry: the next one finds nothing, and that is news too.
        complete = result.complete and not journal.told_complete
        news = result.read or result.gap or complete or failure != journal.failure
        # A word now and then is also the sign that the disk still answers.
        if not news and now - journal.told_at < min(WORD_ROUNDS * self._pace, WORD_SECONDS):
            return
        journal.failure, journal.told_at, journal.told_complete = failure, now, result.complete
        batch = Batch(
            entries=entries,
            ignored=result.read - result.wanted - result.unit_events - result.malformed,
            malformed=result.malformed,
            newest=result.newest,
            position=journal.reader.position(),
            complete_at=moment if result.complete else None,
            duration=duration,
            gap=result.gap,
            failure=failure,
        )
        self._send(("batch", journal.number, pack(batch), result.more))

    def _listen(self, journal: _Journal) -> None:
        """Have the poll tell when the journal changes; the descriptor is another one after it was opened anew."""
        self._deafen(journal)
        try:
            descriptor = journal.reader.fileno()
            journal.announced = journal.reader.announces()
        except (JournalUnavailableError, OSError, ValueError):
            return
        journal.descriptor = descriptor
        self._descriptors[descriptor] = journal.number
        self._poll.register(descriptor, select.POLLIN)

    def _deafen(self, journal: _Journal) -> None:
        if journal.descriptor is not None:
            # A closed descriptor's number may be another journal's by now.
            if self._descriptors.get(journal.descriptor) == journal.number:
                del self._descriptors[journal.descriptor]
                self._poll.unregister(journal.descriptor)
            journal.descriptor = None

    def _send(self, message: Message) -> None:
        self._sock.sendall(frame(message))  # waits while the daemon is behind: nothing piles up


class LogOverSocket(logging.Handler):
    """Sends log records to the daemon, which logs them as its own."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock

    def emit(self, record: logging.LogRecord) -> None:
        """Send one; what cannot be sent is lost with the connection."""
        with contextlib.suppress(OSError):
            self._sock.sendall(frame(("log", record.name, record.levelno, record.getMessage())))
