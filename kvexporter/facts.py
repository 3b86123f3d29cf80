"""What the sources report, as plain values with no interpretation of llama-server's words.

Times are unix seconds (float) of the host's clock unless said otherwise; sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Endpoint = Literal["health", "props", "slots", "metrics", "models"]

PollReason = Literal[
    "unauthorized",  # 401, 403
    "not_found",  # 404
    "unsupported",  # 501: the endpoint is off
    "loading",  # 503
    "http_error",  # any other status
    "redirect",  # 3xx: never followed
    "timeout",
    "refused",  # nothing listens there
    "connection",  # any other transport error
    "too_large",  # body above the bound
    "malformed",  # not what the endpoint answers (HTML, truncated JSON)
    "tls",
    "key_file",  # the API key's file cannot be read
]


# ---- systemd's words, read from the journal ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnitStarted:
    """systemd started the unit."""


@dataclass(frozen=True, slots=True)
class UnitExited:
    """The unit's main process ended other than cleanly.

    `code` is exited, killed or dumped; `status` the number or the signal's name.
    """

    code: str
    status: str


@dataclass(frozen=True, slots=True)
class UnitFailed:
    """The unit failed; `result` as systemd words it (exit-code, oom-kill, start-limit-hit, …)."""

    result: str


@dataclass(frozen=True, slots=True)
class UnitStopped:
    """systemd stopped the unit."""


@dataclass(frozen=True, slots=True)
class UnitRestartScheduled:
    """systemd will start the unit again; `restarts` is its own counter."""

    restarts: int | None


@dataclass(frozen=True, slots=True)
class UnitOutOfMemory:
    """A process of the unit was killed by the kernel's or systemd's OOM killer."""


@dataclass(frozen=True, slots=True)
class LinesSuppressed:
    """journald dropped `count` lines of the unit: all counts from its journal are lower bounds from here on."""

    count: int


UnitEvent = (
    UnitStarted | UnitExited | UnitFailed | UnitStopped | UnitRestartScheduled | UnitOutOfMemory | LinesSuppressed
)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One journal entry worth a look."""

    at: float
    """When journald received it (realtime)."""
    message: bytes
    pid: int | None = None
    """The process that wrote it (not the unit it is about)."""
    invocation: str | None = None
    unit_event: UnitEvent | None = None
    """Set instead of a message from the server when systemd or journald speaks about the unit."""
    continued: bool = False
    """A later piece of a line that journald split (48 KiB, NUL): never parsed as a line of its own."""


# ---- the process ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """What /proc says of one process; fields that cannot be read are None."""

    pid: int
    start_time: float
    cpu_seconds: float
    resident_bytes: int
    anon_bytes: int | None = None
    file_bytes: int | None = None
    shmem_bytes: int | None = None
    swap_bytes: int | None = None
    major_faults: int | None = None
    open_fds: int | None = None


@dataclass(frozen=True, slots=True)
class FoundProcess:
    """A llama-server process seen on the host."""

    pid: int
    start_time: float
    arguments: tuple[str, ...]
    """Its command line, its own name first; values of keys and tokens are not kept."""
    environment: dict[str, str] = field(default_factory=dict)
    """Only LLAMA_ARG_* and LLAMA_API_KEY's presence is kept; empty when unreadable."""
    environment_readable: bool = False
    unit: str | None = None
    """systemd unit from the cgroup (`llama-server.service`), None outside one."""
    user_unit: bool = False
    """The unit belongs to a user's own systemd."""
    container: str | None = None
    """Container id from the cgroup, where it is one."""
    parent: int | None = None
    listen_ports: tuple[int, ...] = ()
    """TCP ports it listens on, where /proc/PID/fd and net/tcp could be read."""
