"""Single requests to a llama-server, made by hand: any path and query, also one that makes it work.

The exporter itself never uses this; it only ever asks the endpoints of `llama_api`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
import msgspec

from kvexporter import __version__
from kvexporter.sources.access_files import KeyFile, TlsFiles
from kvexporter.sources.api_target import AccessError, ApiTarget
from kvexporter.sources.http_failures import explain_failure

BODY_BOUND = 4 * 1024 * 1024
"""Bytes of a body that are read at most."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a request."""

    status: int | None
    """HTTP status; None if no complete answer came."""
    body: bytes = field(default=b"", repr=False)
    """May hold text of an answer: never to be shown."""
    problem: str = ""
    """Why there is no answer, in words fit for a log."""
    hopeless: bool = False
    """Trying again will not help: a file is missing here, or the server's certificate is not accepted."""


async def request(
    target: ApiTarget,
    path: str,
    deadline: float,
    *,
    query: Mapping[str, str] | None = None,
    payload: Mapping[str, object] | None = None,
) -> Answered:
    """Ask for a path below the target's address; a POST if there is a payload. Never raises for what the server does.

    `deadline`: seconds for the request as a whole.
    """
    try:
        async with asyncio.timeout(deadline):
            return await _exchange(target, path, query, payload)
    except TimeoutError:
        return Answered(None, problem=f"no complete answer within {deadline:.0f} s")
    except AccessError as error:
        return _failed(error)
    except Exception as error:  # whatever the network or a library does, only this request has failed
        return _failed(explain_failure(error))


def _failed(error: AccessError) -> Answered:
    return Answered(error.status, problem=error.detail, hopeless=error.reason in ("key_file", "tls"))


async def _exchange(
    target: ApiTarget, path: str, query: Mapping[str, str] | None, payload: Mapping[str, object] | None
) -> Answered:
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": f"kvexporter/{__version__}"}
    if target.api_key_file is not None:
        headers["Authorization"] = "Bearer " + (await KeyFile(target.api_key_file).read()).decode("latin-1")
    content = None
    if payload is not None:
        headers["Content-Type"] = "application/json"
        content = msgspec.json.encode(payload)
    extensions = {"sni_hostname": target.tls_server_name} if target.tls_server_name is not None else {}
    url = httpx.URL(f"{target.base_url.rstrip('/')}/{path.lstrip('/')}", params=dict(query) if query else None)
    sent = httpx.Request(
        "GET" if payload is None else "POST", url, headers=headers, content=content, extensions=extensions
    )
    # The transport without a client around it: no redirects, no proxies, no cookies, no log line.
    transport = httpx.AsyncHTTPTransport(
        verify=await TlsFiles(target).context(),
        trust_env=False,
        uds=str(target.unix_socket) if target.unix_socket else None,
    )
    async with transport:
        response = await transport.handle_async_request(sent)
        try:
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > BODY_BOUND:
                    raise AccessError("too_large", f"more than {BODY_BOUND} bytes", response.status_code)
            return Answered(response.status_code, bytes(body))
        finally:
            await response.aclose()
