"""Posts JSON to one receiver: TLS, basic authentication, a deadline. The only part of alerting that does I/O."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from pathlib import Path

import httpx

from kvexporter import __version__
from kvexporter.config_alerting import BasicAuthConfig
from kvexporter.config_tls import TlsConfig
from kvexporter.sources.access_files import FILE_SECONDS, KeyFile, TlsFiles
from kvexporter.sources.api_target import AccessError, ApiTarget
from kvexporter.sources.connection_watch import ConnectionWatch
from kvexporter.sources.http_failures import explain_failure

ANSWER_BOUND = 64 * 1024
"""Bytes of an answer that are read. What they say is not looked at."""


class Poster:
    """One receiver. `url` is where to post; without it `url_file` holds it, and it is a secret."""

    def __init__(
        self,
        url: str | None,
        *,
        url_file: Path | None = None,
        basic_auth: BasicAuthConfig | None = None,
        tls: TlsConfig | None = None,
        timeout: float = 5.0,
    ) -> None:
        self._url = url
        self._url_file = KeyFile(url_file) if url_file is not None else None
        self._user = basic_auth.username if basic_auth is not None else ""
        self._password = (
            KeyFile(basic_auth.password_file)
            if basic_auth is not None and basic_auth.password_file is not None
            else None
        )
        self._tls = tls or TlsConfig()
        self._timeout = timeout
        self._patience = min(FILE_SECONDS, timeout / 4)
        """Seconds for a file that was read before: there are up to three, and the post itself needs time as well."""
        self._tls_files: dict[str, TlsFiles] = {}
        """By the address' scheme, which `url_file` may change."""

    async def post(self, body: bytes) -> str | None:
        """Post once; None if it was taken, else why not, in words fit for a log: no secret, nothing of the answer."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._post(body)
            return None
        except TimeoutError:
            return f"no complete answer within {self._timeout:g} s"
        except AccessError as error:
            return error.detail
        except Exception as error:  # whatever the network or a library does, only this post has failed
            return explain_failure(error).detail

    async def _post(self, body: bytes) -> None:
        url = await self._address()
        headers = [
            (b"Content-Type", b"application/json"),
            (b"Accept-Encoding", b"identity"),
            (b"User-Agent", b"kvexporter/" + __version__.encode()),
        ]
        if self._password is not None:
            secret = self._user.encode() + b":" + await self._password.read(self._patience)
            headers.append((b"Authorization", b"Basic " + b64encode(secret)))
        watch = ConnectionWatch()
        request = httpx.Request("POST", url, headers=headers, content=body, extensions={"trace": watch.trace})
        # A connection for each post: they are rare, and one that is used again may be closed at that very moment, when
        # nobody can know whether what was posted has been taken.
        transport = httpx.AsyncHTTPTransport(
            verify=await self._tls_context(url.scheme),
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        try:
            response = await transport.handle_async_request(request)
            try:
                await _drain(response)
            finally:
                await response.aclose()
        except asyncio.CancelledError:
            if url.scheme == "https":
                await watch.close_unfinished()
            raise
        finally:
            await transport.aclose()
        if not 200 <= response.status_code < 300:
            redirect = ", a redirect; none is followed" if 300 <= response.status_code < 400 else ""
            raise AccessError("http_error", f"HTTP status {response.status_code}{redirect}", response.status_code)

    async def _address(self) -> httpx.URL:
        if self._url is not None:
            return httpx.URL(self._url)
        if self._url_file is None:
            raise AccessError("key_file", "no address was given")
        try:
            text = (await self._url_file.read(self._patience)).decode()
            url = httpx.URL(text)
        except (httpx.InvalidURL, ValueError):
            raise AccessError("key_file", "what url_file holds is no URL") from None
        if url.scheme not in ("http", "https") or not url.host or url.userinfo or " " in text:
            raise AccessError("key_file", "url_file holds no http:// or https:// URL without user and password")
        return url

    async def _tls_context(self, scheme: str) -> ssl.SSLContext:
        """The TLS settings, made anew when one of the files has changed. Raises AccessError(tls)."""
        files = self._tls_files.get(scheme)
        if files is None:
            tls = self._tls
            target = ApiTarget(
                f"{scheme}://localhost",
                ca_file=tls.ca_file,
                cert_file=tls.cert_file,
                key_file=tls.key_file,
                insecure_skip_verify=tls.insecure_skip_verify,
            )
            files = self._tls_files[scheme] = TlsFiles(target)
        return await files.context(self._patience)


async def _drain(response: httpx.Response) -> None:
    seen = 0
    async for chunk in response.aiter_raw():
        seen += len(chunk)
        if seen > ANSWER_BOUND:
            return
