"""The servers' changes as server-sent events: one look a second for all clients together, and none without any.

For each client only the names of the servers are kept that changed since it took its last event: one that is slow costs
no memory, and then gets the latest of each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from kvexporter.snapshot import ExporterSnapshot
from kvexporter.web.amounts import time_text
from kvexporter.web.exporter_fields import exporter_fields
from kvexporter.web.protocol import STREAM
from kvexporter.web.server_fields import server_summary

log = logging.getLogger("kvexporter.web")

EVENT_STREAM = "text/event-stream"
MAX_CLIENTS = 10
"""Streams at once, of the 40 connections there may be: scrapes come first."""
LOOK_SECONDS = 1.0
HEARTBEAT_SECONDS = 5.0
"""The longest silence: a client that hears nothing for longer knows that the connection is lost."""
RETRY_MILLISECONDS = 2000
"""After so long a browser connects anew."""


@dataclass(eq=False, slots=True)
class _Client:
    admitted: object
    """What the rules were by which it was let in."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    changed: set[str] = field(default_factory=set)
    all_changed: bool = False
    """Servers came or went."""
    exporter_changed: bool = False
    ended: bool = False


async def _nothing() -> None:
    pass


class EventHub:
    """Hands out streams. `rules` gives what decides who is let in: when it is another, all clients must ask anew.

    `look_at_rules` is awaited before they are asked for again.
    """

    def __init__(
        self,
        snapshot: Callable[[], ExporterSnapshot],
        ready: Callable[[], bool],
        rules: Callable[[], object] = lambda: None,
        look_at_rules: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self._snapshot = snapshot
        self._ready = ready
        self._rules = rules
        self._look_at_rules = look_at_rules
        self._clients: set[_Client] = set()
        self._watching: asyncio.Task[None] | None = None
        self._at = ""
        self._exporter = b""
        self._servers: dict[str, bytes] = {}
        """Name → its fields in JSON, as they were at the last look."""

    @property
    def full(self) -> bool:
        """There are as many clients as there may be."""
        return len(self._clients) >= MAX_CLIENTS

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Give events until the client goes, or has to ask anew; none if there is no room for one more."""
        if self.full:
            return
        client = _Client(self._rules())
        self._clients.add(client)
        try:
            if self._watching is None:
                self._look()
                self._watching = asyncio.get_running_loop().create_task(self._watch(), name="events")
            yield b"retry: %d\n\n" % RETRY_MILLISECONDS + self._everything()
            while not client.ended:
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        await client.news.wait()
                except TimeoutError:
                    yield _event("heartbeat", b'{"at":"%s"}' % self._at.encode())
                    continue
                if not client.ended:
                    yield self._news(client)
        finally:
            self._clients.discard(client)
            if not self._clients and self._watching is not None:
                self._watching.cancel()
                self._watching = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look_at_rules()
                self._tell()
            except Exception:
                log.exception("unexpected error; going on")

    def _tell(self) -> None:
        """Look once, and wake whom it concerns."""
        before, exporter = self._servers, self._exporter
        self._look()
        changed = {name for name, fields in self._servers.items() if before.get(name) != fields}
        all_changed = before.keys() != self._servers.keys()
        rules = self._rules()
        for client in self._clients:
            client.ended = client.ended or client.admitted is not rules
            client.changed |= changed
            client.all_changed |= all_changed
            client.exporter_changed |= exporter != self._exporter
            if client.ended or client.changed or client.all_changed or client.exporter_changed:
                client.news.set()

    def _look(self) -> None:
        snapshot = self._snapshot()
        self._at = time_text(snapshot.at) or ""
        self._exporter = msgspec.json.encode(exporter_fields(snapshot, ready=self._ready()))
        self._servers = {
            server.name: msgspec.json.encode(server_summary(server, snapshot)) for server in snapshot.servers
        }

    def _news(self, client: _Client) -> bytes:
        """What a client has not heard yet."""
        client.news.clear()
        changed = [self._servers[name] for name in sorted(client.changed) if name in self._servers]
        everything, exporter = client.all_changed, client.exporter_changed
        client.changed, client.all_changed, client.exporter_changed = set(), False, False
        if everything:
            return self._everything()
        return _event("changes", self._body(changed, exporter=exporter))

    def _everything(self) -> bytes:
        return _event("servers", self._body(list(self._servers.values()), exporter=True))

    def _body(self, servers: list[bytes], *, exporter: bool) -> bytes:
        own = b'"exporter":%s,' % self._exporter if exporter else b""
        return b'{"at":"%s",%s"servers":[%s]}' % (self._at.encode(), own, b",".join(servers))


def _event(name: str, data: bytes) -> bytes:
    # JSON has no line ends of its own, so the data is one line.
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


class EventResponse(StreamingResponse):
    """A stream as an answer. Its end is the hub's to know at once, however it came."""

    def __init__(self, hub: EventHub) -> None:
        self._events = hub.stream()
        # Proxies would keep the events back.
        super().__init__(self._events, headers={"x-accel-buffering": "no"}, media_type=EVENT_STREAM)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begins: Callable[[], None] | None = scope.get("state", {}).get(STREAM)
        if begins is not None:
            begins()
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._events.aclose()
