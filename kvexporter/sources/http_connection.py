"""One HTTP/1.1 connection to a server, for small requests many times a day.

h11 tells what the bytes mean and asyncio's transports carry them; a client library around the two takes ten times
their CPU time, and a daemon that asks every second does hardly anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import cast

import h11

HEADERS_BOUND = 100 * 1024
"""Bytes of a response's head."""

ERROR_BODY_BOUND = 64 * 1024
"""An error's body is dropped, but reading a short one to its end keeps the connection usable."""

ADDRESS_SECONDS = 1.0
"""A host of several addresses is tried at the next one after so long."""

_SOCKET_OPTIONS: list[tuple[int, int, int]] = [
    # A host that vanished with our request answered by nobody is noticed in half a minute, whatever the deadline.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]

Headers = Sequence[tuple[bytes, bytes]]

_Address = tuple[int, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]
"""Family and address of a socket."""


class TooLargeError(Exception):
    """The body is larger than it may be."""


class CompressedError(Exception):
    """The body is compressed, although that was refused."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a connection leads."""

    host: str
    port: int
    unix_socket: Path | None = None
    """Connect here instead."""
    tls_name: str | None = None
    """The name that the certificate must bear; only used with a context."""


class HttpConnection(asyncio.Protocol):
    """Made by `connect`. Serves one request at a time."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        """When the last answer was complete (monotonic)."""
        self.answering = False
        """A byte of the answer under way has come."""
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEADERS_BOUND)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._ended = False
        """The server sends no more."""
        self._bound = 0
        self._status = 0
        self._body = bytearray()

    @property
    def usable(self) -> bool:
        """Another request can be sent."""
        return self._transport is not None and self._answer is None and self._http.our_state is h11.IDLE

    def close(self) -> None:
        """End it at once; a request under way fails."""
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.abort()

    async def get(self, target: bytes, headers: Headers, bound: int) -> tuple[int, bytes]:
        """Status and body of the answer; the body of a 200 as a whole, up to `bound` bytes, none of any other.

        Raises TooLargeError, CompressedError, OSError and h11.RemoteProtocolError; then, and when it is cancelled,
        the connection is closed.
        """
        if not self.usable or self._transport is None:
            raise ConnectionResetError("closed")
        self._bound, self._status, self.answering = bound, 0, False
        self._body.clear()
        self._answer = asyncio.get_running_loop().create_future()
        try:
            head = self._http.send(h11.Request(method=b"GET", target=target, headers=list(headers)))
            self._transport.write((head or b"") + (self._http.send(h11.EndOfMessage()) or b""))
            answer = await self._answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = None
        over = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        # What came unasked would be taken for the next answer.
        if over and not self._ended and not self._http.trailing_data[0]:
            self._http.start_next_cycle()
            self.idle_since = time.monotonic()
        else:
            self.close()
        return answer

    # ---- asyncio's side ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take a part of the answer."""
        self.answering = True
        self._take(data)

    def eof_received(self) -> None:
        """The server has said all it had to; a body may end with that."""
        self._ended = True
        self._take(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._transport = None
        self._fail(exc if exc is not None else ConnectionResetError("closed"))

    def _take(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # the server speaks unasked, or more than it announced
            return
        try:
            self._http.receive_data(data)
            while not self._answer.done():
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                self._event(event)
        except (h11.RemoteProtocolError, TooLargeError, CompressedError) as error:
            self._fail(error)

    def _event(self, event: object) -> None:
        match event:
            case h11.Response():
                self._status = event.status_code
                self._judge(dict(event.headers))
            case h11.Data():
                self._body += event.data
                if self._status != 200 and len(self._body) > ERROR_BODY_BOUND:
                    self._finish(b"")
                elif len(self._body) > self._bound:
                    raise TooLargeError
            case h11.EndOfMessage():
                self._finish(bytes(self._body) if self._status == 200 else b"")
            case _:
                pass  # an interim response, or an end that connection_lost tells of as well

    def _judge(self, headers: dict[bytes, bytes]) -> None:
        """Whether the body is worth reading. h11 gives names in lower case."""
        if self._status != 200:
            return
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise CompressedError
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._bound:
            raise TooLargeError

    def _finish(self, body: bytes) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((self._status, body))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


async def connect(place: Place, context: ssl.SSLContext | None) -> HttpConnection:
    """A new connection, with TLS if there is a context. Raises OSError (ssl.SSLError is one)."""
    loop = asyncio.get_running_loop()
    name = place.tls_name if context is not None else None
    if place.unix_socket is not None:
        _, connection = await loop.create_unix_connection(
            HttpConnection, str(place.unix_socket), ssl=context, server_hostname=name
        )
        return connection
    sock = await _connected_socket(place)
    try:
        _, connection = await loop.create_connection(HttpConnection, sock=sock, ssl=context, server_hostname=name)
    except BaseException:
        sock.close()
        raise
    return connection


async def _connected_socket(place: Place) -> socket.socket:
    """Connected to the first of the host's addresses that takes a connection."""
    loop = asyncio.get_running_loop()
    addresses = await _addresses(place)
    first: OSError | None = None
    for index, (family, address) in enumerate(addresses):
        last = index == len(addresses) - 1
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            for option in _SOCKET_OPTIONS:
                sock.setsockopt(*option)
            async with asyncio.timeout(None if last else ADDRESS_SECONDS):
                await loop.sock_connect(sock, address)
        except OSError as error:  # TimeoutError is one
            sock.close()
            first = first or error
            continue
        except BaseException:
            sock.close()
            raise
        return sock
    raise first or OSError("the host has no address")


async def _addresses(place: Place) -> list[_Address]:
    """The host's addresses, as the system orders them."""
    with contextlib.suppress(ValueError):
        ip = ip_address(place.host)  # without asking the system, which takes a thread
        if not getattr(ip, "scope_id", None):
            return [(socket.AF_INET6 if ip.version == 6 else socket.AF_INET, (place.host, place.port))]
    found = await asyncio.get_running_loop().getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]
