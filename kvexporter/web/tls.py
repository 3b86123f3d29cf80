"""TLS of the HTTP server: certificate, key and clients' authority as an SSLContext; clients' alternative names."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from dataclasses import dataclass, field
from ipaddress import ip_address

from kvexporter.config_reading import ConfigError
from kvexporter.reading_at_start import reading
from kvexporter.web.config_file import TlsServerConfig
from kvexporter.web.config_values import (
    CIPHERS,
    CURVES,
    REQUIRE_AND_VERIFY,
    TLS12,
    TLS13,
    VERIFY_IF_GIVEN,
    Pem,
)

MAX_PEM_BYTES = 1024 * 1024
_VERSIONS = {TLS12: ssl.TLSVersion.TLSv1_2, TLS13: ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {VERIFY_IF_GIVEN: ssl.CERT_OPTIONAL, REQUIRE_AND_VERIFY: ssl.CERT_REQUIRED}
_PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----")
_NOTHING = Pem("")
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


class CertificateError(ConfigError):
    """The server's own certificate or key cannot be used: no question of who may come in."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The server's own certificate with its chain, and its key, as they were read."""

    chain: bytes = field(repr=False)
    key: bytes = field(repr=False)


def read_certificate(tls: TlsServerConfig) -> Certificate:
    """Read certificate and key. Raises CertificateError; whether they belong together, server_context finds out."""
    chain_from, key_from = tls.cert or tls.cert_file or _NOTHING, tls.key or tls.key_file or _NOTHING
    chain = _read(chain_from, CertificateError)
    key = _read(key_from, CertificateError)
    if _CERTIFICATE not in chain:
        hint = "a key: were the two exchanged?" if _PRIVATE_KEY.search(chain) else "something else"
        raise CertificateError(f"{chain_from.where}expected a certificate in PEM format, found {hint}")
    if b"ENCRYPTED" in key:
        raise CertificateError(f"{key_from.where}expected a private key without passphrase, found an encrypted one")
    if not _PRIVATE_KEY.search(key):
        raise CertificateError(f"{key_from.where}expected a private key in PEM format, found something else")
    return Certificate(chain, key)


def read_client_ca(tls: TlsServerConfig) -> bytes | None:
    """Read the certificates that clients' are checked against; None if there are none. Raises ConfigError."""
    source = tls.client_ca or tls.client_ca_file
    if source is None:
        return None
    data = _read(source, ConfigError)
    if _CERTIFICATE not in data:
        raise ConfigError(f"{source.where}expected certificates in PEM format, found none")
    return data


def _read(source: Pem, error: type[ConfigError]) -> bytes:
    if source.path is None:
        return source.text.encode()
    try:
        with reading(source.path), source.path.open("rb") as stream:
            data = stream.read(MAX_PEM_BYTES + 1)
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "not a path"
        raise error(f"{source.where}{source.path} cannot be read: {reason}") from None
    if len(data) > MAX_PEM_BYTES:
        raise error(f"{source.where}{source.path}: expected at most {MAX_PEM_BYTES} bytes")
    return data


def server_context(tls: TlsServerConfig, certificate: Certificate, client_ca: bytes | None) -> ssl.SSLContext:
    """Make the context of new connections. Raises CertificateError or ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    if tls.cipher_suites:
        _set_ciphers(context, tls)
    if tls.curve_preferences:
        # Python has no way to set several.
        context.set_ecdh_curve(CURVES[tls.curve_preferences[0]])
    _load_chain(context, tls, certificate)
    if client_ca is not None:
        _require_clients(context, tls, client_ca)
    return context


def _set_ciphers(context: ssl.SSLContext, tls: TlsServerConfig) -> None:
    names = [CIPHERS[name] for name in tls.cipher_suites if name in CIPHERS]
    if not names:
        # Suites of TLS 1.3 only: nothing is left to speak TLS 1.2 with.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError:
        raise ConfigError(f"cipher_suites: this host's OpenSSL has none of {', '.join(tls.cipher_suites)}") from None


def _load_chain(context: ssl.SSLContext, tls: TlsServerConfig, certificate: Certificate) -> None:
    # Python's ssl reads files only. The key must be on no disk, and both must be what was read and compared.
    where = (tls.cert or tls.cert_file or _NOTHING).where
    chain, key = _memory_file(certificate.chain), _memory_file(certificate.key)
    try:
        context.load_cert_chain(f"/proc/self/fd/{chain}", f"/proc/self/fd/{key}", password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not PEM"
        if reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(f"{where}expected the certificate of the key, found that of another one") from None
        said = reason.lower().replace("_", " ")
        raise CertificateError(f"{where}certificate or key cannot be used: OpenSSL says: {said}") from None
    finally:
        os.close(chain)
        os.close(key)


def _no_password() -> str:
    # Else OpenSSL would ask for one on the terminal.
    raise ValueError


def _memory_file(data: bytes) -> int:
    descriptor = os.memfd_create("kvexporter-tls", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as stream:
        stream.write(data)
    return descriptor


def _require_clients(context: ssl.SSLContext, tls: TlsServerConfig, client_ca: bytes) -> None:
    source = tls.client_ca or tls.client_ca_file or _NOTHING
    try:
        context.load_verify_locations(cadata=client_ca.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"{source.where}the certificates cannot be read: they are damaged") from None
    # As in Go, each certificate of the file is trusted by itself, whether or not its issuer is there too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = _CLIENT_AUTH[tls.client_auth_type]


def has_allowed_san(transport: asyncio.BaseTransport, allowed: tuple[str, ...]) -> bool:
    """Whether the client's certificate, verified already, has one of these alternative names, to the letter."""
    certificate = transport.get_extra_info("peercert") or {}
    return any(_san(kind, str(value)) in allowed for kind, value in certificate.get("subjectAltName", ()))


def _san(kind: str, value: str) -> str | None:
    if kind in ("DNS", "email", "URI"):
        return value
    if kind == "IP Address":
        try:
            return str(ip_address(value.strip()))
        except ValueError:
            return None
    return None
