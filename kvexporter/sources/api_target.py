"""Where one llama-server's HTTP API is and how to get in: address, TLS files, the API key's file."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from kvexporter.facts import Endpoint, PollReason

DEADLINES: Mapping[Endpoint, float] = {"health": 5.0, "props": 5.0, "slots": 5.0, "metrics": 5.0, "models": 5.0}
"""Seconds that one request may take as a whole, connecting and reading included."""


class AccessError(Exception):
    """A request cannot be made or its answer not be taken; `detail` is fit for a log."""

    def __init__(self, reason: PollReason, detail: str, status: int | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.status = status


@dataclass(frozen=True, slots=True)
class ApiTarget:
    """One llama-server's HTTP API. Holds paths of secrets, never a secret.

    Raises ValueError if `base_url` is not a plain http or https address.
    """

    base_url: str
    """Scheme, host, port and the server's `--api-prefix`, such as `https://[::1]:8080/llama`."""
    unix_socket: Path | None = None
    """Connect here instead of the address's host (`--host /run/llama.sock`)."""
    api_key_file: Path | None = None
    """Its first line that is not empty is the key; llama-server's own key file, one key a line, serves too."""
    ca_file: Path | None = None
    """None: the system's certificate authorities."""
    cert_file: Path | None = None
    """A client certificate."""
    key_file: Path | None = None
    """The client certificate's key; None: it is in the certificate's file."""
    insecure_skip_verify: bool = False
    tls_server_name: str | None = None
    """Name that the certificate must bear, where it is not the address's host."""
    deadlines: Mapping[Endpoint, float] = field(default_factory=lambda: dict(DEADLINES), hash=False)
    """Seconds by endpoint; all five are needed."""

    def __post_init__(self) -> None:
        try:
            url = httpx.URL(self.base_url)
        except httpx.InvalidURL as error:
            raise ValueError(f"the server's address is not a URL: {error}") from None
        if url.userinfo:
            # The address is shown in logs and metrics.
            raise ValueError("the server's address must hold no user or password; use api_key_file")
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"the server's address must be http://… or https://…, not {self.base_url!r}")
        if url.port is not None and url.port > 65535:  # httpx lets it pass
            raise ValueError(f"the server's address must have a port of at most 65535, not {url.port}")
        if url.query or url.fragment:
            raise ValueError(f"the server's address must end with its path, without ? or #: {self.base_url!r}")

    def url(self, endpoint: Endpoint) -> httpx.URL:
        """The endpoint's address. Never a query: `?model=` can load a model."""
        return httpx.URL(f"{self.base_url.rstrip('/')}/{endpoint}")

    @property
    def tls(self) -> bool:
        return httpx.URL(self.base_url).scheme == "https"


def local_url(host: str | None, port: int, prefix: str = "", tls: bool = False) -> str:
    """Address for a client on the same host as a server started with this `--host`, `--port` and `--api-prefix`.

    A server that listens on all addresses (0.0.0.0, ::) is reached at the loopback address of the same family. For a
    Unix socket the address only fills the Host header; see `unix_socket`.
    """
    name = (host or "127.0.0.1").strip("[]")
    if unix_socket(name):
        name = "localhost"
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        pass
    else:
        if address.is_unspecified:
            name = "127.0.0.1" if address.version == 4 else "::1"
        if address.version == 6:
            name = f"[{name}]"
    path = prefix.strip("/")
    return f"{'https' if tls else 'http'}://{name}:{port}" + (f"/{path}" if path else "")


def unix_socket(host: str | None) -> Path | None:
    """Path of the Unix socket if this `--host` is one: llama-server takes any host that ends with .sock for a path."""
    return Path(host) if host and host.endswith(".sock") else None
