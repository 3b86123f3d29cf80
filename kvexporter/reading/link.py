"""The daemon's end: starts the reading process, hands on what it says by turns, and starts another when it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import time
from collections import deque
from typing import Protocol

from kvexporter.reading.batch import Batch, unpack
from kvexporter.reading.dying import Dying
from kvexporter.reading.frames import Message, frame
from kvexporter.reading.starting import how_it_ended, start_process
from kvexporter.reading.stream import MessageStream
from kvexporter.reading.suspects import Suspects
from kvexporter.reading.whereabouts import Whereabouts
from kvexporter.sources.drain import Seek
from kvexporter.sources.log_selection import Selection, pack_selection
from kvexporter.turns import Turns

log = logging.getLogger(__name__)

SILENT_SECONDS = 55.0
"""The reading process says a word every thirty seconds at the latest; a slow look may take almost as long."""
GIVE_UP_SECONDS = 600.0
"""After so long without a word it is killed: a disk that hangs may only ever answer another process."""
HUNG_AGAIN_SECONDS = 120.0
"""The same where it hung before and others wait to be read by the process: they are not to wait so long again."""
REST_SECONDS = 300.0
"""So long all logs that hung a process are left alone by the next one while it reads others: they may hang it too."""
RETRY_SECONDS = 30.0
"""After a journal could not be opened."""
FIRST_WAIT_SECONDS = 1.0
LAST_WAIT_SECONDS = 60.0
LONG_LIFE_SECONDS = 60.0
"""After such a life an end was no fault of what it was told to read."""
_MOST_DYING = 2
"""Killed processes that hang in the kernel at one log, where others share the process: they go on in the next one."""
_MANY, _FEW = 8, 2
"""Messages not taken in yet, above which no more are read from the socket, and below which they are again."""


class Listener(Protocol):
    """What is told of one journal."""

    def opened(self, *, gap: bool) -> None:
        """It is read; with a gap, if entries after the given position are gone."""

    def failed(self, reason: str, *, wait: float) -> None:
        """It could not be opened, or cannot be read on: to be opened anew, after `wait` seconds at the earliest."""

    def batch(self, batch: Batch, *, more: bool) -> None:
        """A slice was read; there is more."""


class ReadingLink:
    """One reading process and the journals that it reads. `turns`: others with long work on this loop.

    `stdin`: it gets the exporter's standard input, to read a log from it.
    """

    def __init__(self, turns: Turns, *, stdin: bool = False) -> None:
        self._turns = turns
        self._stdin = stdin
        self._process: subprocess.Popen[bytes] | None = None
        self._whereabouts: Whereabouts | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._unsaid: list[Message] = []
        """What is to be said once the connection is there."""
        self._queue: deque[Message | None] = deque()
        """None: the process's end."""
        self._listeners: dict[int, Listener] = {}
        self._numbers = 0
        self._paused = False
        self._pace = 1.0
        self._heard = 0.0
        """When the process said something last (monotonic)."""
        self._began = 0.0
        self._wait = 0.0
        self._not_before = 0.0
        self._killed = False
        self._suspects: Suspects[Listener] = Suspects()
        self._killed_at: Listener | None = None
        """Whose log it hung at when it was killed, if that is known."""
        self._dying: Dying[Listener] = Dying()
        self._closed = False

    # ---- what the follower says ----------------------------------------------------------------------------------

    def open(
        self, listener: Listener, selection: Selection, position: str | None, seek: Seek, writers_from: float
    ) -> int | None:
        """Have a journal read, and the listener told; the journal's number. None: not now, try again."""
        now = time.monotonic()
        if self._closed or now < self._not_before or not self._suspects.may_open(listener, now, self._held):
            return None
        if self._process is None and not self._start():
            return None
        self._numbers += 1
        number = self._numbers
        self._listeners[number] = listener
        self._say(("open", number, pack_selection(selection), position, seek, os.getpid(), float(writers_from)))
        return number

    def writers(self, number: int, writers_from: float) -> None:
        """From which time on (unix seconds) lines are to come with their writers."""
        self._say(("writers", number, float(writers_from)))

    def read(self, number: int) -> None:
        """Have a journal read now, announced or not."""
        self._say(("read", number))

    def close(self, number: int) -> None:
        """Have a journal read no more; nothing more is said of it."""
        if self._listeners.pop(number, None) is not None:
            self._say(("close", number))

    def forget(self, listener: Listener) -> None:
        """Wait for this one no longer: it opens nothing here any more."""
        self._suspects.clear(listener)

    def pace(self, seconds: float) -> None:
        """How often all journals are to be tried, announced or not."""
        if seconds != self._pace:
            self._pace = seconds
            self._say(("pace", float(seconds)))

    def silence(self) -> float:
        """Seconds since the process said something, if so many that the disk must be thought to hang; else 0."""
        self._dying.processes()
        if self._process is None or not self._listeners or self._queue:
            return 0.0
        silent = time.monotonic() - self._heard
        if silent < SILENT_SECONDS:
            return 0.0
        at = self._whereabouts.number if self._whereabouts is not None else 0
        again = self._listeners.get(at) in self._suspects and self._shared
        if silent > (HUNG_AGAIN_SECONDS if again else GIVE_UP_SECONDS) or (at and at not in self._listeners):
            self.give_up()
        return silent

    def hangs_with(self) -> Listener | None:
        """Whose log the process hangs at; None while it does not hang, or that is not known."""
        if not self.silence() or self._whereabouts is None:
            return None
        return self._listeners.get(self._whereabouts.number)

    def give_up(self) -> bool:
        """Kill the process, so that another one goes on; False if that would only leave one more behind.

        One that hangs in the kernel does not end. Another one may be answered all the same, so it is tried once.
        """
        if self._process is None or self._killed:
            return False
        at = self._listeners.get(self._whereabouts.number) if self._whereabouts is not None else None
        most = _MOST_DYING if at is not None and self._shared else 1
        if self._dying.at(at) >= most:
            return False
        now = time.monotonic()
        self._killed, self._killed_at, silent = True, at, now - self._heard
        if at is not None:
            others = any(its is not at and its not in self._suspects for its in self._listeners.values())
            self._suspects.hung(at, now + REST_SECONDS if others else now)
        log.warning("the process that reads journals is killed: it has said nothing for %.0f s", silent)
        self._process.kill()
        # One that hangs in the kernel does not end: its end of the socket must not be waited for.
        self._disconnect()
        return True

    @property
    def pid(self) -> int | None:
        """The reading process's; None while there is none."""
        return self._process.pid if self._process is not None else None

    async def aclose(self) -> None:
        """End the process; one that hangs is killed."""
        self._closed = True
        self._disconnect()
        left = [*self._dying.processes(), *((self._process,) if self._process is not None else ())]
        for look in range(400):  # a loaded machine takes a while to end a process
            left = [process for process in left if process.poll() is None]
            if not left:
                return
            if look == 100:
                for process in left:
                    process.kill()
            await asyncio.sleep(0.01)

    # ---- the process -------------------------------------------------------------------------------------------

    def _start(self) -> bool:
        ours, theirs = socket.socketpair()
        try:
            with theirs, Whereabouts.shared() as self._whereabouts:
                self._process = start_process(theirs, self._whereabouts, stdin=self._stdin)
        except OSError as error:
            ours.close()
            log.error("the process that reads journals cannot be started: %s", error)
            self._back_off()
            return False
        ours.setblocking(False)
        self._began = self._heard = time.monotonic()
        self._killed = self._paused = False
        self._unsaid = [("pace", float(self._pace))]
        self._connecting = asyncio.get_running_loop().create_task(self._connect(ours))
        return True

    async def _connect(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._transport, _ = await loop.create_connection(
                lambda: MessageStream(self._queue_messages, self._ended), sock=sock
            )
        except asyncio.CancelledError:
            sock.close()
            raise
        unsaid, self._unsaid = self._unsaid, []
        for message in unsaid:
            self._say(message)

    def _disconnect(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _say(self, message: Message) -> None:
        if self._transport is not None:
            self._transport.write(frame(message))
        elif self._process is not None:
            self._unsaid.append(message)

    def _queue_messages(self, messages: list[Message]) -> None:
        self._heard = time.monotonic()
        self._queue.extend(messages)
        if len(self._queue) > _MANY and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        if self._queue:
            self._turns.ask(self._hand_on)

    def _ended(self) -> None:
        """The connection is over: what was said before is handed on first."""
        self._transport = None
        self._queue.append(None)
        self._turns.ask(self._hand_on)

    def _hand_on(self) -> None:
        if not self._queue:
            return
        message = self._queue.popleft()
        if self._queue:
            self._turns.ask(self._hand_on)
        if self._paused and len(self._queue) < _FEW and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        if message is None:
            self._bury()
        else:
            self._tell(message)

    def _tell(self, message: Message) -> None:
        match message:
            case ("batch", int(number), values, more):
                listener = self._listeners.get(number)
                if listener is not None:
                    self._suspects.clear(listener)
                    listener.batch(unpack(values), more=bool(more))
            case ("opened", int(number), gap):
                listener = self._listeners.get(number)
                if listener is not None:
                    listener.opened(gap=bool(gap))
            case ("failed", int(number), str(reason)):
                listener = self._listeners.pop(number, None)
                if listener is not None:
                    self._suspects.clear(listener)
                    listener.failed(reason, wait=RETRY_SECONDS)
            case ("log", str(name), int(level), str(text)):
                logger = logging.getLogger(name)
                logger.log(level, "%s", text)
            case _:
                log.error("the process that reads journals said something unknown")

    def _bury(self, looks: int = 20) -> None:
        """The process is gone: its journals are to be opened anew, after a while if it did not live long."""
        if self._closed or self._process is None:
            return
        status = self._process.poll()
        if status is None and looks and not self._killed:
            # Its end of the socket is closed just before it is gone.
            asyncio.get_running_loop().call_later(0.05, self._bury, looks - 1)
            return
        if status is None:
            self._dying.add(self._process, self._killed_at)
        self._process = None
        if time.monotonic() - self._began >= LONG_LIFE_SECONDS:
            self._wait = 0.0
        self._back_off()
        reason = f"the process that reads journals {how_it_ended(status)}"
        log.warning("%s; another one goes on in %.0f s", reason, self._wait)
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener.failed(reason, wait=0.0)

    @property
    def _shared(self) -> bool:
        """Others are read by the process too, or wait for it."""
        return len({*self._listeners.values(), *self._suspects}) > 1

    def _held(self, listener: Listener) -> bool:
        """As many processes as may be hang at this one's log: it would cost the others one more."""
        return self._dying.at(listener) >= _MOST_DYING

    def _back_off(self) -> None:
        self._wait = min(max(FIRST_WAIT_SECONDS, 2 * self._wait), LAST_WAIT_SECONDS)
        self._not_before = time.monotonic() + self._wait
