"""The exporter's web server with a web configuration, in a thread, for clients that are programs of their own."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from kvexporter.options import ListenAddress
from kvexporter.web.app import create_app
from kvexporter.web.live_config import LiveWebConfig
from kvexporter.web.serve import WebServer, serve
from tests.support.snapshots import FULL, exporter

T = TypeVar("T")
TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
ALICE = "basic_auth_users:\n  alice: $2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi\n"
"""Her password is `fakepassword`: a pair published with Prometheus' exporter-toolkit."""
BOB = "  bob: $2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n"
"""His password is `U*U`: a test vector of John the Ripper."""


class RunningWeb:
    """A server that answers until the end of the `with` block. `file` is its web configuration."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.live = LiveWebConfig(file)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.server: WebServer

    def __enter__(self) -> RunningWeb:
        self._thread.start()
        snapshot = exporter(FULL)
        app = create_app(lambda: snapshot, lambda: True, lambda: True, web_config=self.live)
        self.server = self._run(serve(app, [ListenAddress("127.0.0.1", 0)], self.live))
        self.port = self.server.addresses[0].port
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self.server.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    def _run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(30)

    def ask(self, question: Callable[[], T]) -> T:
        """Call something inside the server's loop."""

        async def asked() -> T:
            return question()

        return self._run(asked())

    def write(self, text: str) -> None:
        """Change the web configuration."""
        self.file.write_text(text)

    def curl(self, *options: str | Path, path: str = "/metrics", scheme: str = "https") -> tuple[int, str]:
        """What the real curl gets: the HTTP status (0: none) and the answer with its headers."""
        url = f"{scheme}://localhost:{self.port}{path}"
        fixed = ["curl", "-q", "-sS", "-i", "--noproxy", "*", "--max-time", "20", "--ipv4"]
        done = subprocess.run(
            [*fixed, *map(str, options), url], capture_output=True, text=True, timeout=40, check=False
        )
        said = done.stdout + done.stderr
        return (int(done.stdout.split()[1]) if done.stdout.startswith("HTTP/") else 0), said

    def s_client(self, *options: str | Path, send: str = "") -> str:
        """What the real `openssl s_client` says of a connection on which it sends some text."""
        command: list[Any] = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.port}", *options]
        done = subprocess.run(
            list(map(str, command)), input=send, capture_output=True, text=True, timeout=40, check=False
        )
        return done.stdout + done.stderr
