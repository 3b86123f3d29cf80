"""The daemon's end of the socket on its loop: takes the reading process's messages as they come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kvexporter.reading.frames import DamagedError, Frames, Message

log = logging.getLogger(__name__)


class MessageStream(asyncio.Protocol):
    """Calls `took` with messages, and `ended` once when no more will come; damaged ones end the connection."""

    def __init__(self, took: Callable[[list[Message]], None], ended: Callable[[], None]) -> None:
        self._frames = Frames()
        self._took = took
        self._ended = ended
        self._transport: asyncio.Transport | None = None

    def data_received(self, data: bytes) -> None:
        """Take what the process says."""
        try:
            messages = list(self._frames.feed(data))
        except DamagedError as error:
            log.error("the process that reads journals said something damaged: %s", error)
            if self._transport is not None:
                self._transport.abort()
            return
        if messages:
            self._took(messages)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, to end it."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has ended, or its end was closed."""
        self._ended()
