"""Alertmanager's receiver in the demonstration: what would be on somebody's phone is said in the terminal."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

_MOST_BYTES = 1_000_000


class MessageReceiver:
    """Takes Alertmanager's webhooks on a port of 127.0.0.1; a context manager."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: list[str] = []

    def __enter__(self) -> MessageReceiver:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(min(length, _MOST_BYTES))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                receiver.take(self.path.strip("/"), body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the standard library's
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def take(self, receiver: str, body: bytes) -> None:
        """Take one message for a receiver of Alertmanager's configuration."""
        try:
            message = json.loads(body)
            lines = [_line(receiver, alert) for alert in message["alerts"]]
        except (ValueError, KeyError, TypeError):
            return
        with self._lock:
            self._lines += lines

    def news(self) -> list[str]:
        """The lines since the last call."""
        with self._lock:
            lines, self._lines = self._lines, []
        return lines


def _line(receiver: str, alert: dict[str, Any]) -> str:
    labels, summary = alert["labels"], alert.get("annotations", {}).get("summary", "")
    over = " is over" if alert["status"] == "resolved" else ""
    return f"  @ Alertmanager to {receiver!r}: {labels['alertname']}{over}: {summary}"
