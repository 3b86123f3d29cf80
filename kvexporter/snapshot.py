"""What the model hands to the views: one server's state at one moment, every number already defined.

None means unknown: views leave it out. Times are unix seconds, sizes bytes, token numbers counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kvexporter.facts import CgroupSample, GpuSample, ProcessSample
from kvexporter.pool_geometry import Geometry

ServerState = Literal["ready", "loading", "sleeping", "down"]
Cause = Literal["pool", "slot"]
KvBytesSource = Literal["journal", "header"]
CAUSES: tuple[Cause, ...] = ("pool", "slot")


@dataclass(frozen=True, slots=True)
class SlotSnapshot:
    """One slot at one moment."""

    id: int
    processing: bool
    tokens: int | None
    """Tokens held now; on an idle slot they are cache. None: unknown."""
    task: int | None = None
    prompt_tokens: int | None = None
    """Size of the whole prompt of the running task, where the log told it."""
    remaining: int | None = None
    """Tokens the answer may still get; None without a limit or when unknown."""
    task_age: float | None = None
    """Seconds since the running task started; None when idle."""
    stalled: float | None = None
    """Seconds since anything of the running task last changed; None when idle."""


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """Who holds the pool at one moment."""

    processing_tokens: int
    idle_tokens: int | None
    """None while an idle slot's cache is of unknown size (a build that does not tell it, joined midway)."""
    fill_ratio: float | None
    resident_ratio: float | None
    fill_peak_ratio: float | None
    committed_tokens: int | None = None
    """What the requests now running will hold once their prompts are read, with their answers as long as they are."""
    committed_ratio: float | None = None
    """That by capacity. From 1 on the pool will be full unless a request ends before."""
    demand_tokens: int | None = None
    """What the requests now running will hold once their prompts are read and their answers, where limited, written."""
    demand_ratio: float | None = None
    """Demand by capacity. Above 1 the pool will be full, if all of them run that far."""
    seconds_to_full: float | None = None
    """Until the pool is full if it goes on like this; None while it does not fill, cannot overflow, or is unknown."""


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """Cumulative buckets of a histogram: (upper bound, count) up to infinity, and the sum of observations."""

    buckets: tuple[tuple[float, float], ...]
    sum: float

    @property
    def count(self) -> float:
        return self.buckets[-1][1] if self.buckets else 0.0


@dataclass(frozen=True, slots=True)
class IncidentSlot:
    """One slot's part in an incident."""

    slot: int
    task: int | None
    tokens: int | None
    share: float | None
    """Part of the pool's capacity, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Incident:
    """One time that requests died for want of context."""

    cause: Cause
    started: float
    ended: float
    slots: tuple[IncidentSlot, ...]
    requests_failed: int
    capacity: int | None
    sum_tokens: int | None
    excess_tokens: int | None
    """Sum minus capacity."""
    unplaced_batch_tokens: int | None
    """The batch that found no room."""
    adds_up: bool | None
    """The excess equals the unplaced batch; None when one of them is unknown."""
    biggest_slot: int | None
    request_tokens: int | None = None
    """Cause slot: the refused request's size, where the log told it."""
    build: str | None = None
    demand_above_seconds: float | None = None
    """How long before its start the running requests were already known to need 97 % of the pool or more."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since the first line that was read. Keys of `failed` and `incidents` are causes."""

    incidents: dict[str, int] = field(default_factory=dict)
    requests_failed: dict[str, int] = field(default_factory=dict)
    error_lines: int = 0
    pressure_lines: int = 0
    recoveries: int = 0
    purges: int = 0
    purged_tokens: int = 0
    context_shifts: int = 0
    answers_truncated: int = 0
    requests_cancelled: int = 0
    http_requests: dict[tuple[str, str], int] = field(default_factory=dict)
    """By (path, status code); empty on builds without an access log."""
    unit_restarts: int | None = None
    unit_exits: dict[str, int] = field(default_factory=dict)
    """By exit status or signal name."""
    oom_kills: int | None = None
    suppressed_lines: int = 0


@dataclass(frozen=True, slots=True)
class UpstreamCounters:
    """Upstream's own counters under their meaning; None where the build does not have one or it was never read."""

    prompt_tokens: float | None = None
    prompt_tokens_cached: float | None = None
    prompt_seconds: float | None = None
    predicted_tokens: float | None = None
    predicted_seconds: float | None = None
    decode_calls: float | None = None
    draft_tokens: float | None = None
    draft_accepted_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class LifeSnapshot:
    """What befell a server lately, with the times: what is a fault only if it lasts, or only if it was lately."""

    down_since: float | None = None
    """Since when it has not run or not answered; None while it is up or that is unknown."""
    loading_since: float | None = None
    """Since when it has been loading its model."""
    deferred_since: float | None = None
    """Since when requests have been waiting for a slot."""
    stopped_on_request: bool | None = None
    """systemd was asked to stop its unit, and has not started it since; None: systemd tells nothing of it."""
    restarts_at: tuple[float, ...] = ()
    """When systemd started its unit anew by itself: the latest times, oldest first."""
    exited_at: float | None = None
    """When its unit's process last ended other than cleanly …"""
    exit_code: str | None = None
    """… and with which exit status or signal."""
    oom_killed_at: float | None = None
    """When a process of it was last killed for want of memory."""


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """All that is known of one server at one moment."""

    name: str
    unit: str | None = None
    url: str | None = None
    model: str | None = None
    build: str | None = None
    up: bool | None = None
    state: ServerState | None = None
    life: LifeSnapshot = field(default_factory=LifeSnapshot)
    requests_processing: int | None = None
    requests_deferred: int | None = None
    geometry: Geometry = field(default_factory=Geometry)
    kv_cache_bytes: int | None = None
    kv_bytes_per_token: float | None = None
    kv_bytes_source: KvBytesSource | None = None
    """Where the bytes per token come from."""
    kv_header_bytes_per_token: float | None = None
    """What the model file's header tells, where it differs from what the log tells."""
    slots: tuple[SlotSnapshot, ...] = ()
    pool: PoolSnapshot | None = None
    fill_seconds: HistogramSnapshot | None = None
    fill_history: tuple[tuple[float, float], ...] = ()
    """(start, highest fill ratio) of each 15 s of the last hour in which the fill was known, oldest first."""
    counters: Counters = field(default_factory=Counters)
    has_log: bool = False
    """Whether this server's log is read: only then do the log's counters exist."""
    catching_up: bool = False
    """Its log has not been read to the end yet, so nothing is said of what only the log tells."""
    last_incident: Incident | None = None
    incidents: tuple[Incident, ...] = ()
    """The latest ones, oldest first."""
    open_incident: Incident | None = None
    """The one whose error was read and whose last lines may still come, as far as it is known; not in `incidents`."""
    pressure_at: float | None = None
    """When a batch last found no room."""
    cascade_since: float | None = None
    """Since when batches find no room, while the outcome is open."""
    request_tokens: HistogramSnapshot | None = None
    request_prompt_tokens: HistogramSnapshot | None = None
    prompt_speed: HistogramSnapshot | None = None
    generation_speed: HistogramSnapshot | None = None
    upstream: UpstreamCounters = field(default_factory=UpstreamCounters)
    process: ProcessSample | None = None
    cgroup: CgroupSample | None = None
    gpu_process_memory: dict[str, int] = field(default_factory=dict)
    """GPU's index → bytes that the process holds on it."""
    memory_at_ready: dict[str, int] = field(default_factory=dict)
    """Kind (resident, anon, gpu) → bytes once the server had settled after its start."""
    memory_growth: dict[str, int] = field(default_factory=dict)
    """Kind → bytes more than then; negative: less."""
    last_poll: dict[str, float] = field(default_factory=dict)
    """Endpoint → time of its last good answer."""
    poll_failures: dict[tuple[str, str], int] = field(default_factory=dict)
    """(endpoint, reason) → count."""
    failing: dict[str, str] = field(default_factory=dict)
    """Endpoint → reason why its latest answer was none, for those of which that was so."""


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """How a source's last round went. `reason` says why it failed, in words for `check`."""

    success: bool
    duration: float
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ExporterSnapshot:
    """All servers and the exporter's own state at one moment."""

    at: float
    servers: tuple[ServerSnapshot, ...]
    collectors: dict[str, CollectorStatus] = field(default_factory=dict)
    journal_lines: dict[str, int] = field(default_factory=dict)
    """Result (matched, ignored, continued, malformed) → lines."""
    journal_lag: float | None = None
    """Seconds between the newest entry's own time and the moment it was read; None before the first."""
    config_reload_successful: bool | None = None
    config_reload_time: float | None = None
    store_errors: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Kind (server, child, slot) → times that something was left out because there was too much of it."""
    journal_gaps: int = 0
    """Times that lines of a journal or log file were gone before they were read."""
    gpus: tuple[GpuSample, ...] = ()
    unified_memory_total: int | None = None
    """The host's memory, where a GPU shares it."""
    unified_memory_available: int | None = None
    """What of it a GPU can still get."""
    alerts_sent: dict[str, int] = field(default_factory=dict)
    """Alertmanager's name → alerts that it took, straight from here."""
    alert_send_failures: dict[str, int] = field(default_factory=dict)
    """Alertmanager's name → posts that failed."""
    webhook_alerts_sent: dict[str, int] = field(default_factory=dict)
    """Webhook's name → alerts that it took."""
    webhook_failures: dict[str, int] = field(default_factory=dict)
    """Webhook's name → posts that failed."""
