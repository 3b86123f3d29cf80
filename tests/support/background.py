"""Misbehaving HTTP servers that run beside a test, on a loop in a thread of their own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager

from tests.support.http_servers import Behaviour, HttpServer, serving


@contextmanager
def background_servers(behaviours: Mapping[str, Behaviour]) -> Iterator[dict[str, HttpServer]]:
    """Run a server for each behaviour; gives them by the same names."""
    servers: dict[str, HttpServer] = {}
    started = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        async with AsyncExitStack() as stack:
            for name, behaviour in behaviours.items():
                servers[name] = await stack.enter_async_context(serving(behaviour))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), name="servers")
    thread.start()
    try:
        if not started.wait(30):
            raise AssertionError("the servers did not start")
        yield servers
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


@contextmanager
def black_hole() -> Iterator[str]:
    """The URL of an address at which connections are neither taken nor refused: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(8):  # as many as fit into the queue, and some that no longer do
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            waiting.append(client)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for client in waiting:
                client.close()
