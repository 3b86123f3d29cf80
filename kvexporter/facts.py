"""What the sources report, as plain values with no interpretation of llama-server's words.

Times are unix seconds (float) of the host's clock unless said otherwise; sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from kvexporter.llama.access_log import Asked
from kvexporter.llama.events import LogLine

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


class UnitWord(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """What systemd or journald says of a unit."""


class UnitStarted(UnitWord, frozen=True):
    """systemd started the unit."""


class UnitExited(UnitWord, frozen=True):
    """The unit's main process ended other than cleanly.

    `code` is exited, killed or dumped; `status` the number or the signal's name.
    """

    code: str
    status: str


class UnitFailed(UnitWord, frozen=True):
    """The unit failed; `result` as systemd words it (exit-code, oom-kill, start-limit-hit, …)."""

    result: str


class UnitStopped(UnitWord, frozen=True):
    """systemd stopped the unit; `restarting`: only to start it anew (None: an older systemd, which does not say)."""

    restarting: bool | None = None


class UnitStopping(UnitWord, frozen=True):
    """systemd was asked to stop the unit, or to start it anew: by an operator, a shutdown, or a unit it depends on."""


class UnitStarting(UnitWord, frozen=True):
    """systemd begins to start the unit: it is no longer stopped, though it may never come up."""


class UnitNotStarted(UnitWord, frozen=True):
    """systemd did not try to start the unit, because another one that it needs failed."""


class UnitRestartScheduled(UnitWord, frozen=True):
    """systemd will start the unit again; `restarts` is its own counter."""

    restarts: int | None


class UnitOutOfMemory(UnitWord, frozen=True):
    """A process of the unit was killed by the kernel's or systemd's OOM killer."""


class LinesSuppressed(UnitWord, frozen=True):
    """journald dropped `count` lines of the unit: all counts from its journal are lower bounds from here on."""

    count: int


UnitEvent = (
    UnitStarted
    | UnitExited
    | UnitFailed
    | UnitStopped
    | UnitRestartScheduled
    | UnitOutOfMemory
    | LinesSuppressed
    | UnitStopping
    | UnitNotStarted
    | UnitStarting
)


Reading = LogLine | Asked
"""What a reader can make of a message."""


class JournalEntry(Struct, frozen=True, gc=False, array_like=True):
    """One journal entry worth a look."""

    at: float
    """When journald received it (realtime)."""
    message: bytes = b""
    """Empty where it is told what it says: then nobody needs the text, which may quote a request."""
    pid: int | None = None
    """The process that wrote it (not the unit it is about)."""
    invocation: str | None = None
    unit_event: UnitEvent | None = None
    """Set instead of a message from the server when systemd or journald speaks about the unit."""
    continued: bool = False
    """A later piece of a line that journald split (48 KiB, NUL): never parsed as a line of its own."""
    reading: Reading | None = None
    """What the reader made of the message, so that nobody has to parse it again."""
    unit: str | None = None
    """The systemd unit or the container that it is of or about. Told in exports only, which may be of a whole host."""


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
class CgroupSample:
    """Memory of a process's control group and what is below it; what the kernel does not tell is None."""

    current_bytes: int
    peak_bytes: int | None = None
    """The most since the group was made."""
    limit_bytes: int | None = None
    """The least limit of the group and of its parents as far as they can be seen; None without one."""
    anon_bytes: int | None = None
    file_bytes: int | None = None
    """Page cache, shared memory included."""
    limit_hits: int | None = None
    """Times that the group was at its limit and nothing could be given back (`oom`; v2 only)."""
    oom_kills: int | None = None
    pressure_some_seconds: float | None = None
    """Time in which at least one task waited for memory (v2 only, also beside v1)."""
    pressure_full_seconds: float | None = None
    """Time in which all tasks waited for memory."""


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
    cuda_visible_devices: str | None = None
    """CUDA_VISIBLE_DEVICES of its environment; None when unset or unreadable."""
    cuda_device_order: str | None = None
    """CUDA_DEVICE_ORDER, which says what the numbers in it mean."""
    unit: str | None = None
    """systemd unit from the cgroup (`llama-server.service`), None outside one."""
    user_unit: bool = False
    """The unit belongs to a user's own systemd."""
    container: str | None = None
    """Container id from the cgroup, where it is one."""
    parent: int | None = None
    listen_ports: tuple[int, ...] = ()
    """TCP ports it listens on, where /proc/PID/fd and net/tcp could be read."""


# ---- the model's file ----------------------------------------------------------------------------------------------

GgufValue = int | float | str | tuple[int | float, ...]


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The key-value pairs of a GGUF file, as it has them: numbers, short texts and short lists of numbers."""

    version: int
    values: dict[str, GgufValue]


# ---- GPUs and the host's memory ------------------------------------------------------------------------------------

GpuVendor = Literal["nvidia", "amd"]

GpuReason = Literal[
    "no_gpu",  # neither a GPU nor a GPU's library
    "no_module",  # the Python package nvidia-ml-py is not installed
    "no_library",  # there is an NVIDIA GPU, and no libnvidia-ml.so.1
    "no_driver",  # the library is there, and the kernel's driver is not loaded
    "mismatch",  # library and driver are of different versions
    "lost",  # a GPU has fallen off the bus, or has to be reset
    "not_supported",  # a GPU that does not tell its memory and is not known to use the host's
    "no_permission",
    "hanging",  # a call into the driver has not come back
    "failed",  # any other error
]
"""Why numbers of GPUs are missing."""


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU, or one slice of a GPU that is cut by MIG, as its driver tells it. What is not told is None."""

    index: str
    """NVML's index (`0`), index and slice (`0:1`), or the DRM card (`card1`). May shift: the identity is `uuid`."""
    uuid: str
    """The driver's own identifier, else the PCI address; empty where there is neither."""
    name: str
    vendor: GpuVendor
    memory_total: int | None = None
    memory_used: int | None = None
    memory_reason: GpuReason | None = None
    """Why its memory is not told; None when it is."""
    unified: bool | None = None
    """Whether its memory is the host's; None: not known."""
    utilization_ratio: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    processes: dict[int, int | None] | None = None
    """Process → bytes held on this GPU, None where they are not told; None as a whole: not listed."""
    gtt_total: int | None = None
    """AMD: the host's memory that the GPU may map."""
    gtt_used: int | None = None
    sliced: bool = False
    """It is cut into slices, which have its memory."""
    slice_of: str | None = None
    """The index of the GPU that it is a slice of."""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """What /proc/meminfo says, in bytes; huge pages in pages."""

    total: int | None = None
    available: int | None = None
    swap_free: int | None = None
    huge_pages: int | None = None
    huge_pages_free: int | None = None
    huge_page_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GpuReport:
    """All GPUs of the host at one moment."""

    gpus: tuple[GpuSample, ...] = ()
    reason: GpuReason | None = None
    """Why something is missing; None when all that the GPUs tell was read."""
    detail: str = ""
    """The same in words."""
    unified_total: int | None = None
    """Memory of the host that GPU and CPU share; None without a GPU that is known to share it."""
    unified_available: int | None = None
    restart_wanted: bool = False
    """Only a new process can load the driver's new library."""
