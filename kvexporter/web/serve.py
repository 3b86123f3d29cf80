"""Listening sockets, and the HTTP server on them.

uvicorn's HTTP protocol is used without uvicorn's own server loop: that one takes over the signals and wakes ten times a
second, and this daemon shall be idle when nothing is asked.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from kvexporter.options import ListenAddress
from kvexporter.web.listener import Listener
from kvexporter.web.live_config import LiveWebConfig
from kvexporter.web.protocol import BoundedProtocol

MAX_CONNECTIONS = 40
"""Open connections; a request on one more gets 503."""
MAX_TAKEN = 2 * MAX_CONNECTIONS
"""Open connections beyond which a new one is closed at once: each holds a descriptor that others need."""
MAX_HEADER_BYTES = 16 * 1024
KEEP_ALIVE_SECONDS = 65
"""A little over a minute, the longest scrape interval in common use."""
GRACE_SECONDS = 1.0
"""How long answers under way may still take when the daemon stops."""

_REASONS = {
    errno.EADDRINUSE: "the port is taken by another program; choose another --web.listen-address or stop that program",
    errno.EACCES: "not permitted; ports below 1024 need CAP_NET_BIND_SERVICE",
    errno.EADDRNOTAVAIL: "this host has no such address",
}


class ListenError(Exception):
    """An address cannot be listened on; the text says which, why and what to do."""


def open_sockets(addresses: Iterable[ListenAddress]) -> list[socket.socket]:
    """Open listening sockets for all addresses, or none: raises ListenError."""
    opened: list[socket.socket] = []
    try:
        for address in addresses:
            opened.append(_open(address))  # noqa: PERF401 - those opened before an error must be known
    except ListenError:
        for sock in opened:
            sock.close()
        raise
    return opened


def _open(address: ListenAddress) -> socket.socket:
    host = address.host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 - asked for
    try:
        found = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenError(f"cannot listen on {address}: {error.strerror}: check --web.listen-address") from None
    family, _, _, _, where = found[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it. Else an answer's last packet waits for the client's delayed acknowledgement: 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            # Only `:port` means both protocols; `[::]:port` beside `0.0.0.0:port` must be possible.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not address.host else 1)
        sock.bind(where)
        sock.listen(128)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        reason = _REASONS.get(error.errno or 0, os.strerror(error.errno or 0))
        raise ListenError(f"cannot listen on {address}: {reason}") from None
    return sock


class WebServer:
    """Serves an application on open sockets, inside the running loop and without touching signals.

    `web_config` says whether over TLS, with which certificate and to which clients; None: plain HTTP to all.
    """

    def __init__(self, app: ASGIApp, sockets: Iterable[socket.socket], web_config: LiveWebConfig | None = None) -> None:
        self._sockets = list(sockets)
        self._web_config = web_config
        self._state = ServerState()
        self._listeners: list[Listener] = []
        self._config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            # A client's bad request is no event of ours: no line in our log for it.
            log_level=logging.ERROR,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )

    @property
    def addresses(self) -> list[ListenAddress]:
        """The addresses as they are, with the port that the system chose for port 0."""
        return [ListenAddress(*sock.getsockname()[:2]) for sock in self._sockets]

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._state.connections)

    async def start(self) -> None:
        """Begin to answer."""
        self._config.load()
        self._listeners = [
            Listener(sock, self._protocol, self._context, lambda: self.connections < MAX_TAKEN)
            for sock in self._sockets
        ]

    async def _context(self) -> ssl.SSLContext | None:
        if self._web_config is None:
            return None
        await self._web_config.look()
        return self._web_config.context

    def _protocol(self) -> BoundedProtocol:
        admits = self._web_config.admits if self._web_config is not None else None
        return BoundedProtocol(config=self._config, server_state=self._state, app_state={}, admits=admits)

    async def aclose(self) -> None:
        """Take no more connections, end the idle ones at once and the others within GRACE_SECONDS."""
        for listener in self._listeners:
            await listener.aclose()
        for connection in list(self._state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                while self._state.tasks:
                    await asyncio.wait(list(self._state.tasks))
        for connection in list(self._state.connections):
            connection.transport.abort()
        # The transports report their end in the loop's next round.
        await asyncio.sleep(0)


async def serve(app: ASGIApp, addresses: Iterable[ListenAddress], web_config: LiveWebConfig | None = None) -> WebServer:
    """Answer on all addresses from now on. Raises ListenError if one of them cannot be listened on."""
    server = WebServer(app, open_sockets(addresses), web_config)
    await server.start()
    return server
