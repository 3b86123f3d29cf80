"""All thresholds, in one place: the rules, the alerts that the daemon sends itself, and the dashboards take them here.

Times are seconds, sizes bytes, ratios parts of 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvexporter.snapshot import PoolSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCondition:
    """One sign that a shared pool is on its way to overflow: every bound that is set must be met."""

    committed_ratio: float | None = None
    """llama_kv_pool_committed_ratio is at least this."""
    demand_ratio: float | None = None
    """llama_kv_pool_demand_ratio is at least this."""
    seconds_to_full: float | None = None
    """llama_kv_pool_seconds_to_full is less than this."""
    fill_ratio: float | None = None
    """llama_kv_pool_fill_ratio is at least this."""
    fill_peak_ratio: float | None = None
    """llama_kv_pool_fill_peak_ratio is at least this."""

    def met_by(self, pool: PoolSnapshot) -> bool:
        """Say whether all bounds are met; a bound on what is unknown is not."""
        return (
            _at_least(pool.committed_ratio, self.committed_ratio)
            and _at_least(pool.demand_ratio, self.demand_ratio)
            and _less(pool.seconds_to_full, self.seconds_to_full)
            and _at_least(pool.fill_ratio, self.fill_ratio)
            and _at_least(pool.fill_peak_ratio, self.fill_peak_ratio)
        )


def _at_least(value: float | None, bound: float | None) -> bool:
    return bound is None or (value is not None and value >= bound)


def _less(value: float | None, bound: float | None) -> bool:
    return bound is None or (value is not None and value < bound)


# The pool. Any one of the conditions is enough. They count only where OVERCOMMIT_RATIO is exceeded.

POOL_WARN: tuple[PoolCondition, ...] = (
    PoolCondition(committed_ratio=0.97),
    PoolCondition(seconds_to_full=3600),
    PoolCondition(fill_peak_ratio=0.97),
)
"""LlamaPoolFillingUp. Tuned by the lead-time benchmark (benchmarks/README.md). An answer's limit is no sign: most
clients ask for far more than they use. The forecast itself looks ahead by how long it has watched the pool fill."""

POOL_PAGE: tuple[PoolCondition, ...] = (
    PoolCondition(seconds_to_full=60, committed_ratio=0.97, fill_ratio=0.85),
    PoolCondition(committed_ratio=1.0, fill_ratio=0.9),
    PoolCondition(demand_ratio=1.0, fill_peak_ratio=0.99),
)
"""LlamaPoolAlmostFull. That most of it is really held keeps guesses, and requests that end before, from paging."""

OVERCOMMIT_RATIO = 1.0
"""A pool that promises more than this can overflow (LlamaPoolOvercommitted); no other pool is warned about."""

OVERCOMMIT_FOR = 600
"""LlamaPoolOvercommitted: so long, since a server that starts is not known in full at once."""

POOL_WARN_KEEP = 300
"""LlamaPoolFillingUp goes on so long after its conditions: the fill is a sawtooth, and an alert should not be one."""

POOL_PAGE_KEEP = 120
"""LlamaPoolAlmostFull goes on so long after its conditions."""

FILL_WARN_RATIO = 0.85
"""Yellow on dashboards: much of the pool is taken. No alert by itself."""

FILL_PAGE_RATIO = 0.97
"""Red on dashboards."""

INCIDENT_WINDOW = 600
"""LlamaContextExceeded, LlamaRequestTooLong: they go on so long after the latest incident."""

PRESSURE_WINDOW = 600
"""LlamaPoolPressure: batches found no room, and no request died, within this time."""

DEFERRED_REQUESTS = 0
"""LlamaRequestsDeferred: more requests than this wait for a slot."""

DEFERRED_FOR = 120

STALLED_SECONDS = 180
"""LlamaSlotStalled: nothing of a running request changed for so long."""

TASK_AGE_SECONDS = 3600
"""LlamaSlotRunsOn: a request runs for so long."""

# The server.

DOWN_FOR = 60
"""LlamaServerDown."""

LOADING_FOR = 900
"""LlamaServerLoadingTooLong: a large model from a slow disk takes minutes."""

CRASH_WINDOW = 900
"""LlamaServerCrashLooping: systemd restarted the unit CRASH_RESTARTS times within this time."""

CRASH_RESTARTS = 3

OOM_WINDOW = 900
"""LlamaServerOutOfMemory: goes on so long after the kill."""

# Speed.

SLOW_RATIO = 0.5
"""LlamaGenerationSlow: the mean speed of SLOW_WINDOW by the mean of SLOW_BASELINE is less than this."""

SLOW_WINDOW = 1800

SLOW_BASELINE = 604800

SLOW_REQUESTS = 5
"""Fewer requests than this within SLOW_WINDOW say nothing."""

SLOW_BASELINE_REQUESTS = 50
"""Fewer requests than this within SLOW_BASELINE say nothing."""

SLOW_FOR = 900

# Memory.

CREEP_STEP = 43200
"""LlamaMemoryCreeping: the process's own memory grew in each of the last two steps of this time …"""

CREEP_STEP_RATIO = 0.02
"""… by more than this part of what it took at its start …"""

CREEP_RATIO = 0.1
"""… and is more than this part above it …"""

CREEP_BYTES = 1_073_741_824
"""… and more than this."""

CREEP_FOR = 3600

MAJOR_FAULTS_PER_SECOND = 20
"""LlamaWeightsReread: so many page faults that read from disk."""

MAJOR_FAULTS_WINDOW = 600

MAJOR_FAULTS_FOR = 600

MAJOR_FAULTS_SETTLED = 1800
"""A server younger than this still reads its weights for the first time."""

UNIFIED_AVAILABLE_RATIO = 0.05
"""LlamaUnifiedMemoryLow: less of the host's memory than this is left."""

UNIFIED_FOR = 300

GPU_FREE_BYTES = 268_435_456
"""LlamaGpuMemoryLow: less of the GPU's memory is free. llama-server itself leaves a GiB where it may choose."""

GPU_FOR = 300

# The exporter.

EXPORTER_DOWN_FOR = 120

JOURNAL_FOR = 120

JOURNAL_LAG_SECONDS = 60
"""KvexporterJournalNotRead: entries are read so late."""

COLLECTOR_FOR = 300

COUNTS_WINDOW = 86400
"""KvexporterCountsLowerBound: goes on so long after entries were lost."""

STORE_WINDOW = 900
"""KvexporterStoreFailing: a write failed within this time."""

STORE_FOR = 120
