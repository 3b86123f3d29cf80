"""A real HTTP server that takes JSON, as a webhook's receiver or a notifications' does."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, TypeVar

from tests.support.paths import wait_for

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request: when it came (unix seconds), where it went, its headers in small letters, its JSON."""

    at: float
    path: str
    headers: dict[str, str]
    json: Any


@dataclass
class WebhookReceiver:
    """Takes everything that is posted; a context manager. `status` is what it answers with from now on."""

    status: int = 200
    deliveries: list[Delivery] = field(default_factory=list)
    refused: int = 0
    """Requests that were answered with another status than 200, and not taken."""
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> WebhookReceiver:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.status == 200:
                    headers = {name.lower(): value for name, value in self.headers.items()}
                    receiver.deliveries.append(Delivery(time.time(), self.path, headers, json.loads(body)))
                else:
                    receiver.refused += 1
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="webhook receiver", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(20)

    def wait(self, what: str, probe: Callable[[Delivery], T | None], deadline: float = 30.0) -> T:
        """Wait for a delivery that `probe` finds something in, and give that."""

        def look() -> T | None:
            return next((found for delivery in list(self.deliveries) if (found := probe(delivery))), None)

        try:
            return wait_for(what, look, deadline)
        except AssertionError as error:
            raise AssertionError(f"{error}; it was told {[delivery.json for delivery in self.deliveries]}") from None
