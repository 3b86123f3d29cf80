"""The web configuration in force: read again whenever one of its files has changed, without a restart.

What decides who may come in fails closed: while the file or the clients' authority cannot be used, nobody is answered.
The server's own certificate is another matter: while a new one cannot be used (half of a renewal, a wrong owner), the
old one stays. The files may be on a network's disk: they are looked at aside, and while that does not answer all stays
as it was, since nobody can know whether it was changed. Whoever asks then waits for a moment only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from kvexporter.aside import Aside
from kvexporter.config_reading import ConfigError
from kvexporter.reading_at_start import reading
from kvexporter.web.config_file import TlsServerConfig, WebConfig, load_web_config
from kvexporter.web.tls import (
    Certificate,
    CertificateError,
    has_allowed_san,
    read_certificate,
    read_client_ca,
    server_context,
)

log = logging.getLogger("kvexporter.web")

FRESH_SECONDS = 2.0
"""A file changed less than this ago is read again at each look: it may change again within one tick of its clock."""

LOOK_SECONDS = 2.0
"""How long the files may take to be read, and to say whether they have changed before it is said that they do not."""

PATIENCE = 0.2
"""How long an answer waits for word whether the files have changed. A healthy disk says so in less than 1 ms; the rest
is for a processor that is busy."""

_Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Secured:
    """TLS settings with all that they name, as it was read; equal means that connections may stay."""

    tls: TlsServerConfig
    certificate: Certificate
    client_ca: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class _InForce:
    """What was made of the files; never changed, so that it can be made in a thread."""

    config: WebConfig
    secured: _Secured | None
    context: ssl.SSLContext | None
    usable: bool = True
    """The files can be used as they are now; else nobody may be answered."""


class LiveWebConfig:
    """The file and all that it names. Raises ConfigError if they cannot be used at the start.

    `clock` gives unix seconds, to be compared with the files' times. What is in force is as of the last `look`.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._stamps: dict[Path, _Stamp] = {}
        self._fresh = True
        self._error: str | None = None
        self._certificate_error: str | None = None
        self._looking: Aside[bool] = Aside("looking at the web configuration")
        self._reading: Aside[None] = Aside("reading the web configuration")
        self._telling: asyncio.TimerHandle | None = None
        """Says, in a moment, that the files do not answer."""
        self._hangs = False
        """That was said."""
        self._now = self._read(None)

    @property
    def config(self) -> WebConfig | None:
        """The configuration; None while it cannot be used, and then nobody may be answered."""
        return self._now.config if self._now.usable else None

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS context of a new connection; None: plain HTTP. While nobody may be answered, that of before."""
        return self._now.context

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Whether a connection was made under the rules that are in force, and its client is let in by them.

        If not it must be cut off: a client may have been let in by an authority that is no longer trusted.
        """
        now = self._now
        if transport.get_extra_info("sslcontext") is not now.context:
            return False
        tls = now.secured.tls if now.secured is not None else None
        return tls is None or tls.client_allowed_sans is None or has_allowed_san(transport, tls.client_allowed_sans)

    async def look(self) -> None:
        """Read the files again if one has changed. To be awaited before each decision.

        Files that do not answer are waited for no longer than a moment; what is known to have changed is waited for.
        """
        try:
            changed = await self._looking.call(self._changed, PATIENCE)
        except TimeoutError:
            if self._telling is None:
                self._telling = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._tell)
            return
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if changed:
            try:
                await self._reading.call(self._read_anew, LOOK_SECONDS)
            except TimeoutError:
                self._tell()
                return
        if self._hangs:
            log.info("web configuration can be read again")
        self._hangs = False

    def _tell(self) -> None:
        if not self._hangs and (self._looking.late or self._reading.late):
            log.error("web configuration cannot be read: its disk or network does not answer; the last one stays")
            self._hangs = True

    def _changed(self) -> bool:
        # All are looked at before anything is read: a disk that hangs is to be noticed here, where nobody waits long.
        stamps = {path: _stamp(path) for path in self._stamps}
        return self._fresh or stamps != self._stamps

    def _read_anew(self) -> None:
        try:
            self._now = self._read(self._now)
        except ConfigError as error:
            if str(error) != self._error:
                log.error("web configuration cannot be used; nobody is answered until it can: %s", error)
            self._error = str(error)
            self._now = replace(self._now, usable=False)
            return
        if self._error is not None:
            self._error = None
            log.info("web configuration can be used again")

    def _read(self, before: _InForce | None) -> _InForce:
        # The stamps come first: what changes during the reading is then read again.
        stamps: dict[Path, _Stamp] = {}
        try:
            self._note(self._path, stamps)
            config, warnings = load_web_config(self._path)
            for path in _files(config.tls):
                self._note(path, stamps)
            return self._made(config, warnings, before)
        finally:
            self._stamps = stamps
            now = self._clock()
            self._fresh = any(abs(now - stamp[0] / 1e9) < FRESH_SECONDS for stamp in stamps.values() if stamp)

    def _note(self, path: Path, stamps: dict[Path, _Stamp]) -> None:
        with reading(path):
            stamps[path] = _stamp(path)

    def _made(self, config: WebConfig, warnings: tuple[str, ...], before: _InForce | None) -> _InForce:
        secured = context = None
        if config.tls is not None:
            secured, context = self._secure(config.tls, before.secured if before is not None else None)
        if before is not None and secured == before.secured:
            context = before.context
            if config == before.config:
                return replace(before, usable=True)
        for warning in warnings:
            log.warning("%s", warning)
        if before is not None:
            log.info("web configuration read anew")
        return _InForce(config, secured, context)

    def _secure(self, tls: TlsServerConfig, before: _Secured | None) -> tuple[_Secured, ssl.SSLContext]:
        client_ca = read_client_ca(tls)
        try:
            certificate = read_certificate(tls)
            context = server_context(tls, certificate, client_ca)
        except CertificateError as error:
            if before is None:
                raise
            if str(error) != self._certificate_error:
                log.error("the new certificate cannot be used, the old one stays: %s", error)
            self._certificate_error = str(error)
            certificate = before.certificate
            context = server_context(tls, certificate, client_ca)
        else:
            self._certificate_error = None
        return _Secured(tls, certificate, client_ca), context


def check_web_config(path: Path) -> tuple[str, tuple[str, ...]]:
    """Read all that would be used; say what it does, and what is suspicious. Raises ConfigError."""
    config, warnings = load_web_config(path)
    if config.tls is not None:
        server_context(config.tls, read_certificate(config.tls), read_client_ca(config.tls))
    users = len(config.basic_auth_users.hashes)
    return f"{'TLS' if config.tls is not None else 'no TLS'}, {users} users", warnings


def _files(tls: TlsServerConfig | None) -> list[Path]:
    if tls is None:
        return []
    return [pem.path for pem in (tls.cert_file, tls.key_file, tls.client_ca_file) if pem is not None and pem.path]


def _stamp(path: Path) -> _Stamp:
    try:
        found = os.stat(path)  # noqa: PTH116 - called at each request, and a Path takes three times as long
    except (OSError, ValueError):
        return ()
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
