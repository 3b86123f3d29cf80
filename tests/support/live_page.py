"""The real application on a real port, showing the snapshot that a test chooses; in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from kvexporter.options import ListenAddress
from kvexporter.snapshot import ExporterSnapshot
from kvexporter.web.app import create_app
from kvexporter.web.live_config import LiveWebConfig
from kvexporter.web.serve import WebServer, serve

T = TypeVar("T")


class LivePage:
    """Serves what `shown` is at that moment; a context manager. `web_config`: a file with users or TLS."""

    def __init__(self, shown: ExporterSnapshot, web_config: Path | None = None) -> None:
        self.shown = shown
        self._web_config = web_config
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="page")
        self._server: WebServer | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        assert self._server is not None
        return self._server.connections

    def __enter__(self) -> LivePage:
        self._thread.start()
        try:
            self.start()
        except BaseException:
            self._end_loop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._end_loop()

    def start(self) -> None:
        """Begin to answer; after `stop` on the same port."""
        live = LiveWebConfig(self._web_config) if self._web_config is not None else None
        app = create_app(lambda: self.shown, lambda: True, lambda: True, web_config=live)
        self._server = self._run(serve(app, [ListenAddress("127.0.0.1", self.port)], live))
        self.port = self._server.addresses[0].port

    def stop(self) -> None:
        """End as the daemon does."""
        if self._server is not None:
            server, self._server = self._server, None
            self._run(server.aclose())

    def tasks(self) -> set[str]:
        """Names of what runs in the loop."""

        async def named() -> set[str]:
            return {task.get_name() for task in asyncio.all_tasks()}

        return self._run(named())

    def _run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(30)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()
