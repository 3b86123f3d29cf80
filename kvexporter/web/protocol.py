"""uvicorn's HTTP/1.1 protocol with an end to every request.

uvicorn limits only how long a connection may be idle between requests: a client that sends its request byte by byte, or
never reads its answer, would keep its connection, and the few there may be would soon be taken.

A stream of events has no end. Its client is cut off when it stops taking what it is sent.

When there are as many connections as there may be, a new one takes the place of one that only waits for its client:
else whoever opens enough of them and says nothing would keep the scrapes out.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 20.0
"""From the first byte of a request (for the first one: from the connection) to the last byte of its answer."""
STREAM = "kvexporter.stream"
"""Key in the scope's `state`: what an application calls, without arguments, when its answer is a stream."""
ADMITTED = "kvexporter.admitted"
"""Key in the scope's `state`: tells, without arguments, whether the connection is still let in; else it was cut off."""
STREAM_BUFFER_BYTES = 64 * 1024
"""What the kernel may keep for a stream's client that is behind."""
PATIENCE_SECONDS = 1.0
"""A request that is not complete after so long is the first to go when a place is needed: scrapes take milliseconds."""
LOOKS = 4
"""A stream's client that is behind at so many looks in a row, within REQUEST_SECONDS, is cut off."""


class BoundedProtocol(H11Protocol):
    """Cuts a connection off whose request is not over after REQUEST_SECONDS.

    `admits` is asked for each new connection and again before each of its requests; False cuts it off.
    """

    seconds = REQUEST_SECONDS

    def __init__(
        self, *args: Any, admits: Callable[[asyncio.BaseTransport], bool] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._admits = admits
        self._under_way = False
        self._deadline: asyncio.TimerHandle | None = None
        self._streams = False
        self._behind = 0
        """Looks in a row at which a stream's client had not taken all."""
        self._since = 0.0
        """When this connection last began to wait for its client: for a request's rest, or for the next request."""
        self.app_state[STREAM] = self._stream
        self.app_state[ADMITTED] = self._admitted

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._admitted():
            return
        self._begin()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        # Bytes that come while an answer is under way do not prolong it.
        if not self._under_way:
            if not self._admitted():
                return
            self._begin()
        super().data_received(data)

    def shutdown(self) -> None:
        if self._streams:
            self.transport.close()
        else:
            super().shutdown()

    def on_response_complete(self) -> None:
        self._streams = False
        super().on_response_complete()
        # A pipelined request begins in the call above. Bytes that are still to be sent stay under the deadline.
        if self.cycle is not None and not self.cycle.response_complete:
            self._begin()
        else:
            self._under_way = False
            self._since = self.loop.time()
            if not self._unsent():
                self._end()

    def send_400_response(self, msg: str) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            # Bad bytes in a request's body: its answer has no place any more, and whoever makes it need not know.
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.abort()
                return
        super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def _admitted(self) -> bool:
        if self._admits is None or self._admits(self.transport):
            return True
        self._cut_now()
        return False

    def _begin(self) -> None:
        self._end()
        self._under_way = True
        self._since = self.loop.time()
        self._deadline = self.loop.call_later(self.seconds, self._cut_off)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _make_room(self) -> None:
        """Cut off the one that has waited longest if this connection's request would be one too many."""
        here = [each for each in self.connections if isinstance(each, BoundedProtocol)]
        if self.limit_concurrency is None or len(here) < self.limit_concurrency:
            return
        waiting = [each for each in here if each is not self and (each.cycle is None or each.cycle.response_complete)]
        if waiting:
            min(waiting, key=BoundedProtocol._turn_to_go)._cut_now()

    def _cut_now(self) -> None:
        # Not counted from now on: its end is told a turn of the loop later, when the next one may have come.
        self.connections.discard(self)
        self.transport.abort()

    def _turn_to_go(self) -> tuple[bool, float]:
        """What sorts the connections that wait: half requests that take too long, then by how long they wait."""
        half = self._under_way and self.loop.time() - self._since > PATIENCE_SECONDS
        return not half, self._since

    def _stream(self) -> None:
        """The answer under way is a stream: from now on its client's progress counts and not its length."""
        self._end()
        self._streams, self._behind = True, 0
        sock: socket.socket = self.transport.get_extra_info("socket")
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER_BYTES)
            # Else a client that has vanished without a word would be there for a quarter of an hour.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(self.seconds * 1000))
        self._look_later()

    def _look_later(self) -> None:
        self._deadline = self.loop.call_later(self.seconds / LOOKS, self._look)

    def _look(self) -> None:
        """Whether the client takes what it is sent: bytes wait here only when the kernel's buffer is full."""
        self._deadline = None
        if not self._streams:
            return
        self._behind = self._behind + 1 if self.transport.get_write_buffer_size() > 0 else 0
        if self._behind >= LOOKS:
            self.transport.abort()
        else:
            self._look_later()

    def _cut_off(self) -> None:
        self._deadline = None
        if self._under_way or self._unsent():
            self.transport.abort()

    def _unsent(self) -> bool:
        """Whether the client has not yet taken all that was sent to it."""
        if self.transport.get_write_buffer_size() > 0:
            return True
        if self.transport.get_extra_info("sslcontext") is None:
            return False
        # With TLS the number above is only what is not yet encrypted; what is waits in a buffer that cannot be seen.
        # While that one holds anything, the kernel's does too.
        sock: socket.socket = self.transport.get_extra_info("socket")
        with suppress(OSError, ValueError):
            waiting: int = struct.unpack("i", ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))[0]
            return waiting > 0
        return False
