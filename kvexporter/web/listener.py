"""Takes connections from a listening socket, with the TLS settings that are in force at that moment.

asyncio's own server keeps the TLS context that it was started with, so a new certificate would need a restart. It also
takes any number of connections: each of them could then hold a descriptor that the journal's reader needs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

log = logging.getLogger("kvexporter.web")

HANDSHAKE_SECONDS = 10.0
"""From the connection to the end of its TLS handshake."""
TLS_END_SECONDS = 2.0
"""How long a client may take to confirm the end of a TLS connection."""
MAX_HANDSHAKES = 40
"""Connections that may be in their handshake at once; one more cuts off the oldest, which is the one that hangs."""
REST_SECONDS = 0.5
"""Pause after the system could give no connection, for want of descriptors or memory."""


class Listener:
    """Accepts on one socket until closed. `protocol` makes the protocol of a connection.

    `context` gives the TLS context, None for plain connections; `has_room` whether one more may be taken.
    """

    def __init__(
        self,
        sock: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        context: Callable[[], Awaitable[ssl.SSLContext | None]],
        has_room: Callable[[], bool],
    ) -> None:
        self._sock = sock
        self._protocol = protocol
        self._context = context
        self._has_room = has_room
        self._arriving: dict[asyncio.Task[None], bool] = {}
        """Connections in their handshake, the oldest first; False: not yet begun."""
        self._short = False
        self._task = asyncio.get_running_loop().create_task(self._accept(), name="accept connections")

    async def aclose(self) -> None:
        """Take no more connections, and drop those in their handshake."""
        tasks = [self._task, *self._arriving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._sock.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._sock)
            except ConnectionError:
                continue  # gone before it was taken
            except OSError as error:
                if not self._short:
                    log.error("no connection can be taken: %s", error.strerror)
                self._short = True
                await asyncio.sleep(REST_SECONDS)
                continue
            self._short = False
            if not self._has_room():
                connection.close()
                continue
            if len(self._arriving) >= MAX_HANDSHAKES:
                next(iter(self._arriving)).cancel()
            task = loop.create_task(self._take(connection), name="new connection")
            self._arriving[task] = False
            task.add_done_callback(partial(self._arrived, connection))
            # Else a flood of connections would be taken one after the other while all else waits.
            await asyncio.sleep(0)

    def _arrived(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        if not self._arriving.pop(task):
            connection.close()
        if not task.cancelled() and task.exception() is not None:
            log.error("a connection could not be taken", exc_info=task.exception())

    async def _take(self, connection: socket.socket) -> None:
        context = await self._context()
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        if task is not None:
            # From here on the transport closes the connection.
            self._arriving[task] = True
        # A client's broken handshake is no event of ours: no line in our log for it.
        with suppress(OSError):
            if context is None:
                await loop.connect_accepted_socket(self._protocol, connection)
            else:
                await loop.connect_accepted_socket(
                    self._protocol,
                    connection,
                    ssl=context,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS,
                    ssl_shutdown_timeout=TLS_END_SECONDS,
                )
