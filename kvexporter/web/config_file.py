"""The file of --web.config.file: TLS, basic authentication, headers and rate limit, in the format of Prometheus' own
exporter-toolkit. What it means: docs/web.md.

The same files as with other exporters are taken, with one difference: what would leave a door open unseen (TLS settings
without a certificate, client certificates checked against nothing) is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from kvexporter.config_kinds import BOOLEAN, integer
from kvexporter.config_reading import Key, ListOf, Place, Section, read_file
from kvexporter.web.config_values import (
    CIPHER,
    CLIENT_AUTH,
    CURVE,
    GO_DURATION,
    HEADERS,
    MAX_VERSION,
    MIN_VERSION,
    NO_CLIENT_CERT,
    PEM_FILE,
    PEM_TEXT,
    REQUIRE_AND_VERIFY,
    SAN,
    TLS12,
    TLS13,
    TLS13_CIPHERS,
    USERS,
    Pem,
    Users,
)

__all__ = ["WEB_CONFIG", "HttpServerConfig", "RateLimitConfig", "TlsServerConfig", "WebConfig", "load_web_config"]

MAX_BURST = 1_000_000


@dataclass(frozen=True, slots=True)
class TlsServerConfig:
    """The certificate shown to clients, and which clients and ways of encryption are taken."""

    cert: Annotated[Pem | None, Key(PEM_TEXT, "The certificate itself, with its chain.")] = None
    key: Annotated[Pem | None, Key(PEM_TEXT, "The certificate's private key itself.")] = field(default=None, repr=False)
    client_ca: Annotated[Pem | None, Key(PEM_TEXT, "The certificates that clients' are checked against.")] = None
    cert_file: Annotated[Pem | None, Key(PEM_FILE, "File of the certificate, with its chain (PEM).")] = None
    key_file: Annotated[Pem | None, Key(PEM_FILE, "File of the certificate's private key (PEM, not encrypted).")] = None
    client_ca_file: Annotated[
        Pem | None, Key(PEM_FILE, "File of the certificates that clients' are checked against (PEM).")
    ] = None
    client_auth_type: Annotated[
        str, Key(CLIENT_AUTH, "Whether clients must show a certificate.", f"`{NO_CLIENT_CERT}`")
    ] = NO_CLIENT_CERT
    client_allowed_sans: Annotated[
        tuple[str, ...] | None,
        Key(ListOf(SAN, 1000), "Only clients whose certificate has one of these alternative names.", "all"),
    ] = None
    min_version: Annotated[str, Key(MIN_VERSION, "Lowest TLS version.", f"`{TLS12}`")] = TLS12
    max_version: Annotated[str, Key(MAX_VERSION, "Highest TLS version.", f"`{TLS13}`")] = TLS13
    cipher_suites: Annotated[
        tuple[str, ...], Key(ListOf(CIPHER, 100), "Suites of TLS 1.2. Those of TLS 1.3 are always on.", "OpenSSL's")
    ] = ()
    prefer_server_cipher_suites: Annotated[
        bool, Key(BOOLEAN, "Whether the order of `cipher_suites` counts, or the client's.", "`true`")
    ] = True
    curve_preferences: Annotated[
        tuple[str, ...], Key(ListOf(CURVE, 100), "Curve of the key exchange. Only the first one is used.", "OpenSSL's")
    ] = ()


def _check_tls(place: Place, tls: TlsServerConfig) -> TlsServerConfig:
    if tls == TlsServerConfig() and not place.node.value:
        return tls
    for inline, file in (("cert", "cert_file"), ("key", "key_file"), ("client_ca", "client_ca_file")):
        if getattr(tls, inline) is not None and getattr(tls, file) is not None:
            raise place.refuse(f"expected {inline} or {file}, found both")
    for inline, file in (("cert", "cert_file"), ("key", "key_file")):
        if getattr(tls, inline) is None and getattr(tls, file) is None:
            raise place.refuse(f"expected {inline} or {file}, found neither: without it there would be no TLS at all")
    has_ca = tls.client_ca is not None or tls.client_ca_file is not None
    if has_ca and tls.client_auth_type == NO_CLIENT_CERT:
        raise place.refuse("expected a client_auth_type that checks certificates, beside client_ca or client_ca_file")
    if tls.client_auth_type != NO_CLIENT_CERT and not has_ca:
        raise place.refuse(
            f"expected client_ca or client_ca_file with client_auth_type {tls.client_auth_type}: "
            "whom would the clients' certificates be from?"
        )
    if tls.client_allowed_sans is not None and tls.client_auth_type != REQUIRE_AND_VERIFY:
        raise place.refuse(f"expected client_auth_type {REQUIRE_AND_VERIFY} with client_allowed_sans")
    only_tls13 = bool(tls.cipher_suites) and set(tls.cipher_suites) <= set(TLS13_CIPHERS)
    if tls.max_version == TLS12 and (tls.min_version == TLS13 or only_tls13):
        raise place.refuse("expected a max_version that leaves a version to speak, found TLS12")
    if len(set(tls.curve_preferences)) > 1:
        place.warn(f"curve_preferences: only the first one, {tls.curve_preferences[0]}, is used")
    return tls


TLS = Section(TlsServerConfig, _check_tls)


@dataclass(frozen=True, slots=True)
class HttpServerConfig:
    """Protocol and headers of the answers."""

    http2: Annotated[bool, Key(BOOLEAN, "Taken, and without effect: kvexporter speaks HTTP/1.1.", "`true`")] = True
    headers: Annotated[
        dict[str, str],
        Key(
            HEADERS,
            "Headers of all answers: `Content-Security-Policy`, `X-Frame-Options` (`deny`, `sameorigin`), "
            "`X-Content-Type-Options` (`nosniff`), `X-XSS-Protection`, `Strict-Transport-Security`. "
            "They take the place of kvexporter's own.",
        ),
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RateLimitConfig:
    """How many requests are answered; the others get 429. All clients share it."""

    interval: Annotated[float, Key(GO_DURATION, "Time after which one more request may come; 0: no limit.", "`0`")] = (
        0.0
    )
    burst: Annotated[int, Key(integer(0, MAX_BURST), "How many may come at once.", "`0`")] = 0


def _check_rate_limit(place: Place, limit: RateLimitConfig) -> RateLimitConfig:
    if limit.interval > 0 and limit.burst < 1:
        raise place.refuse("expected a burst of at least 1: with 0 no request would ever be answered")
    return limit


@dataclass(frozen=True, slots=True)
class WebConfig:
    """Who may ask, and how."""

    tls_server_config: Annotated[TlsServerConfig, Key(TLS, "TLS. Without it, plain HTTP.")] = TlsServerConfig()
    http_server_config: Annotated[HttpServerConfig, Key(Section(HttpServerConfig), "Protocol and headers.")] = field(
        default_factory=HttpServerConfig
    )
    basic_auth_users: Annotated[
        Users, Key(USERS, "User names and the bcrypt hashes of their passwords. Without any, no password is asked for.")
    ] = field(default_factory=Users)
    rate_limit: Annotated[
        RateLimitConfig, Key(Section(RateLimitConfig, _check_rate_limit), "Limit of all requests together.")
    ] = RateLimitConfig()

    @property
    def tls(self) -> TlsServerConfig | None:
        """The TLS settings; None: plain HTTP."""
        tls = self.tls_server_config
        return tls if tls.cert is not None or tls.cert_file is not None else None


def _check_web(place: Place, web: WebConfig) -> WebConfig:
    if web.basic_auth_users and web.tls is None:
        place.warn("basic_auth_users without tls_server_config: passwords can be read on the way")
    return web


WEB_CONFIG = Section(WebConfig, _check_web)


def load_web_config(path: Path) -> tuple[WebConfig, tuple[str, ...]]:
    """Read the file; give it and what is suspicious in it. Certificates and keys are not read yet.

    Raises ConfigError with every problem found.
    """
    return read_file(path, WEB_CONFIG)
