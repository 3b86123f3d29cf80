"""One llama-server's HTTP API: asks an endpoint and hands over the body, or says why there is none.

What a body means is decided elsewhere; here only the status code is looked at.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import h11
import httpx

from kvexporter import __version__
from kvexporter.facts import Endpoint, PollReason
from kvexporter.sources.access_files import KeyFile, TlsFiles
from kvexporter.sources.api_target import DEADLINES, AccessError, ApiTarget, local_url, unix_socket
from kvexporter.sources.http_connection import (
    CompressedError,
    Headers,
    HttpConnection,
    Place,
    TooLargeError,
    connect,
)
from kvexporter.sources.http_failures import explain_failure

__all__ = ["BODY_BOUND", "DEADLINES", "KEPT_SECONDS", "ApiAnswer", "ApiTarget", "LlamaApi", "local_url", "unix_socket"]

BODY_BOUND = 4 * 1024 * 1024
"""Bytes of a body that are read at most."""

KEPT_SECONDS = 4.0
"""A connection is not used again after this; llama-server closes it after 5 s."""

_TIMED_OUT = 408
"""What some proxies send before they close an idle connection; it may arrive just when that is used again."""

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
        self._tls_files = TlsFiles(target) if target.tls else None
        url = httpx.URL(target.base_url)
        self._place = Place(
            url.raw_host.decode("ascii"),
            url.port or (443 if target.tls else 80),
            target.unix_socket,
            target.tls_server_name or url.raw_host.decode("ascii"),
        )
        self._paths: dict[Endpoint, bytes] = {endpoint: target.url(endpoint).raw_path for endpoint in DEADLINES}
        self._headers = [
            (b"Host", url.netloc),
            (b"Accept-Encoding", b"identity"),
            (b"User-Agent", b"kvexporter/" + __version__.encode()),
        ]
        self._kept: HttpConnection | None = None
        """One for the next request: llama-server spends one of its few threads (slots + 2) on every open connection."""
        self._context: ssl.SSLContext | None = None
        """The TLS settings that it was made with."""
        self._under_way: set[Endpoint] = set()

    def __repr__(self) -> str:
        return f"LlamaApi({self.target.base_url!r})"

    async def aclose(self) -> None:
        """Close the connection that is kept."""
        self.rest()

    def rest(self) -> None:
        """No question follows within `KEPT_SECONDS`: close the kept connection, before the server does and wakes us."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

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
                status, body = await self._exchange(endpoint)
            if status == 200:
                return ApiAnswer(endpoint, sent_at, self._wall_clock(), 200, body)
            failure = _status_failure(status)
        except TimeoutError:
            failure = AccessError("timeout", f"no complete answer within {deadline:g} s")
        except TooLargeError:
            failure = AccessError("too_large", f"more than {BODY_BOUND} bytes", 200)
        except CompressedError:
            failure = AccessError("malformed", "compressed, although that was refused", 200)
        except AccessError as error:
            failure = error
        except Exception as error:  # whatever the network or a library does, only this poll has failed
            failure = explain_failure(error)
        finally:
            self._under_way.discard(endpoint)
        return ApiAnswer(
            endpoint, sent_at, self._wall_clock(), failure.status, reason=failure.reason, detail=failure.detail
        )

    async def _exchange(self, endpoint: Endpoint) -> tuple[int, bytes]:
        """Status, and the body of a 200. No redirect is followed, no proxy is used, no cookie kept."""
        headers = [*self._headers, (b"Accept", b"text/plain" if endpoint == "metrics" else b"application/json")]
        if self._key is not None:
            try:
                headers.append((b"Authorization", b"Bearer " + await self._key.read()))
            except AccessError:
                if endpoint != "health":  # which needs no key
                    raise
        context = await self._tls_files.context() if self._tls_files is not None else None
        connection = self._take_kept(context)
        if connection is not None:
            try:
                answer = await self._ask(connection, endpoint, headers, context)
                if answer[0] != _TIMED_OUT:
                    return answer
                await self.aclose()
            except (OSError, h11.RemoteProtocolError):
                # The server may close an idle connection at the very moment it is used again. That says nothing about
                # the server; a new connection that breaks does.
                if connection.answering:
                    raise
        return await self._ask(await connect(self._place, context), endpoint, headers, context)

    async def _ask(
        self, connection: HttpConnection, endpoint: Endpoint, headers: Headers, context: ssl.SSLContext | None
    ) -> tuple[int, bytes]:
        answer = await connection.get(self._paths[endpoint], headers, BODY_BOUND)
        if self._kept is None and connection.usable:
            self._kept, self._context = connection, context
        else:
            connection.close()
        return answer

    def _take_kept(self, context: ssl.SSLContext | None) -> HttpConnection | None:
        """The kept connection, if it can be used and was made with these TLS settings."""
        kept, self._kept = self._kept, None
        if kept is None:
            return None
        if kept.usable and context is self._context and time.monotonic() - kept.idle_since < KEPT_SECONDS:
            return kept
        kept.close()
        return None


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
