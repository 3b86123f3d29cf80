"""uvicorn's HTTP/1.1 protocol with an end to every request.

uvicorn limits only how long a connection may be idle between requests: a client that sends its request byte by byte, or
never reads its answer, would keep its connection, and the few there may be would soon be taken.
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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._admits is not None and not self._admits(transport):
            transport.abort()
            return
        self._begin()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        # Bytes that come while an answer is under way do not prolong it.
        if not self._under_way:
            if self._admits is not None and not self._admits(self.transport):
                self.transport.abort()
                return
            self._begin()
        super().data_received(data)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # A pipelined request begins in the call above. Bytes that are still to be sent stay under the deadline.
        if self.cycle is not None and not self.cycle.response_complete:
            self._begin()
        else:
            self._under_way = False
            if not self._unsent():
                self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        self._end()
        self._under_way = True
        self._deadline = self.loop.call_later(self.seconds, self._cut_off)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

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
