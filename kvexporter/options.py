"""What the command line says to the daemon."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from typing import Literal

from kvexporter.glance import glance

DEFAULT_PORT = 9889
STORE_NAME = "kvexporter.db"
SYSTEM_STORE = Path("/var/lib/kvexporter") / STORE_NAME
"""Where the packaged unit has it."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on. An empty host means all addresses of this host."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_ADDRESS = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[A-Za-z0-9._-]*)):(?P<port>[0-9]{1,5})")


def parse_listen_address(text: str) -> ListenAddress:
    """Read `host:port`, `[address]:port` or `:port`. Raises ValueError that says what was expected."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError(f"expected host:port, [IPv6 address]:port or :port, found {text!r}")
    port = int(found["port"])
    if port > 65535:
        raise ValueError(f"expected a port up to 65535, found {port}")
    if found["six"] is not None:
        try:
            IPv6Address(found["six"])
        except ValueError:
            raise ValueError(f"expected an IPv6 address between the brackets, found {found['six']!r}") from None
    return ListenAddress(found["six"] or found["host"], port)


_PATH = re.compile(r"(?:/[A-Za-z0-9_.~-]+)+")


def parse_telemetry_path(text: str) -> str:
    """Read the path of the metrics. Raises ValueError that says what was expected."""
    if not _PATH.fullmatch(text) or text.startswith("/-/") or "/." in text:
        raise ValueError(f"expected a path such as /metrics, without /-/ at its start, found {text!r}")
    return text


def parse_storage_path(text: str) -> Path | Literal[""]:
    """Read the store's path; empty for none. Raises ValueError that says what was expected."""
    if not text:
        return ""
    path = Path(text)
    if glance(path, path.is_dir) or text.endswith("/"):  # on a disk that hangs the store is waited for, not here
        raise ValueError(f"expected a file such as {text.rstrip('/')}/{STORE_NAME}, found a folder")
    return path


def default_storage_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the store is when nothing is said: systemd's StateDirectory=, else the user's own place for state."""
    if folder := environment.get("STATE_DIRECTORY"):
        return Path(folder.split(":", 1)[0]) / STORE_NAME
    state = environment.get("XDG_STATE_HOME") or Path(environment.get("HOME") or "/var/lib") / ".local" / "state"
    return Path(state) / "kvexporter" / STORE_NAME


@dataclass(frozen=True, slots=True)
class OneServer:
    """A server whose log is no journal's, as the command line tells of it."""

    log_file: Path | None = None
    """Absolute. None: standard input."""
    name: str | None = None
    """None: after the log."""
    url: str | None = None
    """Where it answers; None: as its log tells."""


_NAME = re.compile(r"[A-Za-z0-9_.:@-]{1,100}")


def parse_name(text: str) -> str:
    """Read a server's name. Raises ValueError that says what was expected."""
    if not _NAME.fullmatch(text):
        raise ValueError(f"expected a name of 1 to 100 characters out of A-Z a-z 0-9 _ . : @ -, found {text[:100]!r}")
    return text


def parse_url(text: str) -> str:
    """Read a server's URL. Raises ValueError that says what was expected."""
    from kvexporter.sources.api_target import ApiTarget

    url = text.rstrip("/")
    if not url.startswith(("http://", "https://")) or "@" in url:
        raise ValueError("expected an http or https URL, such as http://127.0.0.1:8080, without user and password")
    try:
        ApiTarget(url)
    except ValueError:
        raise ValueError("expected an http or https URL, such as http://127.0.0.1:8080") from None
    return url


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `kvexporter run` that the daemon needs."""

    config_file: Path | None = None
    """None: no file; everything is found out."""
    listen_addresses: tuple[ListenAddress, ...] = (ListenAddress("127.0.0.1", DEFAULT_PORT),)
    telemetry_path: str = "/metrics"
    enable_lifecycle: bool = False
    """Allow POST /-/reload."""
    storage_path: Path | None = None
    """File that keeps counters and journal positions over restarts; None: nothing is kept."""
    web_config_file: Path | None = None
    """TLS, basic authentication and headers; None: plain HTTP to all who can connect."""
    one_server: OneServer | None = None
    """The one server to watch, in place of a configuration file."""
