"""How an HTTP request gets its connection, and the closing of one that the transport has lost sight of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpcore


class ConnectionWatch:
    """Follows how a request gets its connection, by the transport's trace events."""

    def __init__(self) -> None:
        self.is_new = False
        """The connection was made for this request, not used before."""
        self._bare: httpcore.AsyncNetworkStream | None = None

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            self.is_new = True
            self._bare = info["return_value"]
        elif event == "connection.connect_unix_socket.complete":
            self.is_new = True
        elif event == "connection.start_tls.complete":
            self._bare = None

    async def close_unfinished(self) -> None:
        """Close a connection whose TLS exchange was cut short by the deadline: the transport has lost sight of it."""
        if self._bare is not None:
            stream, self._bare = self._bare, None
            await stream.aclose()
