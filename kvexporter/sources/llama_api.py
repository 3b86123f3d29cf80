"""One llama-server's HTTP API: asks an endpoint and hands over the body, or says why there is none.

What a body means is decided elsewhere; here only the status code is looked at.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from kvexporter import __version__
from kvexporter.facts import Endpoint, PollReason
from kvexporter.sources.api_target import (
    DEADLINES,
    AccessError,
    ApiTarget,
    KeyFile,
    Stamp,
    local_url,
    stamp,
    tls_context,
    unix_socket,
)
from kvexporter.sources.connection_watch import ConnectionWatch
from kvexporter.sources.http_failures import explain_failure

__all__ = ["BODY_BOUND", "DEADLINES", "ApiAnswer", "ApiTarget", "LlamaApi", "local_url", "unix_socket"]

BODY_BOUND = 4 * 1024 * 1024
"""Bytes of a body that are read at most. The bound of all response headers together is httpcore's, 100 KiB."""

_ERROR_BODY_BOUND = 64 * 1024
"""An error's body is dropped, but reading a short one to its end keeps the connection usable."""

_KEPT_CONNECTIONS = 1
"""llama-server spends one of its few worker threads (slots + 2 by default) on every open connection."""

_IDLE_SECONDS = 4.0
"""A connection is not used again after this; llama-server closes it after 5 s."""

_SOCKET_OPTIONS: list[tuple[int, int, int]] = [
    # A host that vanished with our request answered by nobody is noticed in half a minute, whatever the deadline.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]

_STATUS_REASONS: dict[int, PollReason] = {
    401: "unauthorized",
    403: "unauthorized",
    404: "not_found",
    501: "unsupported",
    503: "loading",
}


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """What became of one request. Either `reason` is None and `body` is the whole body of a 200, or it failed."""

    endpoint: Endpoint
    sent_at: float
    """Unix seconds; before the connection was made."""
    answered_at: float
    """Unix seconds; the end of the body, or the moment it failed."""
    status: int | None = None
    """HTTP status; None if none came."""
    body: bytes = field(default=b"", repr=False)
    """Empty on failure. Older builds send prompts: never to be shown."""
    reason: PollReason | None = None
    detail: str = ""
    """The failure in words for a log: nothing of the body, no secret."""

    @property
    def ok(self) -> bool:
        return self.reason is None


class LlamaApi:
    """A client of one server. `wall_clock` gives unix seconds for the answers' times."""

    def __init__(self, target: ApiTarget, wall_clock: Callable[[], float] = time.time) -> None:
        self.target = target
        self._wall_clock = wall_clock
        self._key = KeyFile(target.api_key_file) if target.api_key_file else None
        self._urls: dict[Endpoint, httpx.URL] = {endpoint: target.url(endpoint) for endpoint in DEADLINES}
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._transport_stamp: tuple[Stamp | None, ...] = ()
        self._under_way: set[Endpoint] = set()

    def __repr__(self) -> str:
        return f"LlamaApi({self.target.base_url!r})"

    async def aclose(self) -> None:
        """Close the connections."""
        if self._transport is not None:
            transport, self._transport = self._transport, None
            await transport.aclose()

    async def get(self, endpoint: Endpoint, *, patience: float = 1.0) -> ApiAnswer:
        """Ask one endpoint. Never raises for what the server or the network does.

        `patience` multiplies the endpoint's deadline. Raises RuntimeError if a request to the same endpoint is under
        way: requests must never pile up on a server that does not answer.
        """
        if endpoint in self._under_way:
            raise RuntimeError(f"a request to /{endpoint} is under way already")
        self._under_way.add(endpoint)
        deadline = self.target.deadlines[endpoint] * patience
        sent_at = self._wall_clock()
        failure: AccessError
        try:
            async with asyncio.timeout(deadline):
                body = await self._exchange(endpoint)
            return ApiAnswer(endpoint, sent_at, self._wall_clock(), 200, body)
        except TimeoutError:
            failure = AccessError("timeout", f"no complete answer within {deadline:g} s")
        except AccessError as error:
            failure = error
        except Exception as error:  # whatever the network or a library does, only this poll has failed
            failure = explain_failure(error)
        finally:
            self._under_way.discard(endpoint)
        return ApiAnswer(
            endpoint, sent_at, self._wall_clock(), failure.status, reason=failure.reason, detail=failure.detail
        )

    async def _exchange(self, endpoint: Endpoint) -> bytes:
        transport = await self._current_transport()
        response = await self._send(transport, endpoint)
        try:
            if response.status_code == 200:
                return await _whole_body(response)
            if response.status_code >= 400:
                await _drain(response)
        finally:
            await response.aclose()
        raise _status_failure(response.status_code)

    async def _send(self, transport: httpx.AsyncHTTPTransport, endpoint: Endpoint) -> httpx.Response:
        """Send the request and read the response's headers.

        The transport is used without a client around it: no redirects, no proxies, no cookies, no log line per request.
        """
        headers = [
            (b"Accept", b"text/plain" if endpoint == "metrics" else b"application/json"),
            (b"Accept-Encoding", b"identity"),
            (b"User-Agent", b"kvexporter/" + __version__.encode()),
        ]
        if self._key is not None:
            try:
                headers.append((b"Authorization", b"Bearer " + self._key.read()))
            except AccessError:
                if endpoint != "health":  # which needs no key
                    raise
        watch = ConnectionWatch()
        extensions: dict[str, Any] = {"trace": watch.trace}
        if self.target.tls_server_name is not None:
            extensions["sni_hostname"] = self.target.tls_server_name
        request = httpx.Request("GET", self._urls[endpoint], headers=headers, extensions=extensions)
        try:
            try:
                return await transport.handle_async_request(request)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                # The server may close an idle connection at the very moment it is used again. That says nothing about
                # the server; a new connection that breaks does.
                if watch.is_new:
                    raise
                return await transport.handle_async_request(request)
        except asyncio.CancelledError:
            if self.target.tls:
                await watch.close_unfinished()
            raise

    async def _current_transport(self) -> httpx.AsyncHTTPTransport:
        """The connection pool; a new one when a TLS file has changed. Raises AccessError(tls)."""
        target = self.target
        current = stamp(target.ca_file, target.cert_file, target.key_file) if target.tls else ()
        alone = len(self._under_way) == 1
        if self._transport is not None and (current == self._transport_stamp or not alone):
            return self._transport  # closing the old one would break off the others' requests
        transport = httpx.AsyncHTTPTransport(
            verify=tls_context(target),
            trust_env=False,
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=_KEPT_CONNECTIONS, keepalive_expiry=_IDLE_SECONDS
            ),
            uds=str(target.unix_socket) if target.unix_socket else None,
            socket_options=None if target.unix_socket else _SOCKET_OPTIONS,
        )
        await self.aclose()
        self._transport, self._transport_stamp = transport, current
        return transport


def reason_of_status(status: int) -> PollReason | None:
    """Why an answer with this HTTP status is a failure; None for the one that is not."""
    if status == 200:
        return None
    return _STATUS_REASONS.get(status, "redirect" if 300 <= status < 400 else "http_error")


def _status_failure(status: int) -> AccessError:
    reason = reason_of_status(status) or "http_error"
    words = f"HTTP status {status}"
    if reason == "redirect":
        words += ", a redirect; none is followed"
    return AccessError(reason, words, status)


async def _whole_body(response: httpx.Response) -> bytes:
    """The body of a 200. Raises AccessError: too_large as soon as that is known, malformed if it is compressed."""
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise AccessError("malformed", "compressed, although that was refused", 200)
    too_large = AccessError("too_large", f"more than {BODY_BOUND} bytes", 200)
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and int(length) > BODY_BOUND:
        raise too_large
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > BODY_BOUND:
            raise too_large
    return bytes(body)


async def _drain(response: httpx.Response) -> None:
    """Read a short body to its end and leave a long or broken one."""
    seen = 0
    try:
        async for chunk in response.aiter_raw():
            seen += len(chunk)
            if seen > _ERROR_BODY_BOUND:
                return
    except httpx.TransportError:
        return
