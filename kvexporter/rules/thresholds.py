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
"""A pool that promises more than this can overflow (LlamaPoolOvercommitted); no other pool is warned about. This is
arithmetic and no guess: what is promised, by what there is."""

OVERCOMMIT_FOR = 600
"""LlamaPoolOvercommitted: so long, since a server that starts is not known in full at once, and since who tries out
flags need not be told of each."""

POOL_WARN_KEEP = 300
"""LlamaPoolFillingUp goes on so long after its conditions: the fill is a sawtooth, as agents let go of their slots
between turns, and an alert should not be one. A turn of an agent with its tools takes seconds to a few minutes."""

POOL_PAGE_KEEP = 120
"""LlamaPoolAlmostFull goes on so long after its conditions: a page that comes and goes within one turn wakes twice."""

FILL_WARN_RATIO = 0.85
"""Yellow on dashboards: much of the pool is taken. No alert by itself, as a pool may be that full and stay so. In the
recorded incident of four agents it was reached 313 s before the requests died."""

FILL_PAGE_RATIO = 0.97
"""Red on dashboards: the last 3 % of 262,144 tokens are four batches of 2,048, which `-b` is by default."""

INCIDENT_WINDOW = 600
"""LlamaContextExceeded, LlamaRequestTooLong: they go on so long after the latest incident. Agents try again at once,
and that is one emergency, not ten; and the alert ends while whoever mended it still looks."""

PRESSURE_WINDOW = 600
"""LlamaPoolPressure: batches found no room, and no request died, within this time. As long as an incident's, so that
its own failing batches are never told as pressure after it."""

DEFERRED_REQUESTS = 0
"""LlamaRequestsDeferred: more requests than this wait for a slot. How many is no matter; how long is."""

DEFERRED_FOR = 300
"""LlamaRequestsDeferred: half of the ten minutes after which common clients give up (OpenAI's libraries). Waiting
itself is no fault: one slot with a queue is a good configuration, in which a request waits for the one before, measured
at 72 s; three at once on a slow server took 615 s."""

STALLED_SECONDS = 300
"""LlamaSlotStalled: nothing of a running request changed for so long. The longest that a healthy one is silent is one
batch of its prompt: 2,048 tokens take so long at 7 tokens per second, which is slow even without a GPU. Servers that
really hung did so for hours, until somebody looked."""

TASK_AGE_SECONDS = 3600
"""LlamaSlotRunsOn: a request runs for so long. Six times the slowest request that was measured (615 s, one of three on
a small GPU); the largest prompt, 262,144 tokens, is read in it at 73 tokens per second. Abandoned requests write until
the end of their slot's context."""

# The server.

DOWN_FOR = 60
"""LlamaServerDown. A restart is shorter: a server that loads its model answers, and is up. So a minute is no restart,
and every request of that minute has failed."""

LOADING_FOR = 900
"""LlamaServerLoadingTooLong: the largest model of which we have figures (75,720 MiB in memory) is read in 13 minutes at
100 MB/s, a slow disk or a gigabit network. From an SSD it takes two to three."""

CRASH_WINDOW = 900
"""LlamaServerCrashLooping: systemd restarted the unit CRASH_RESTARTS times within this time. It does not find a
loop whose starts take more than five minutes each."""

CRASH_RESTARTS = 3
"""One crash is an accident, two may be one accident and its consequence. The measured loop (exit status 127, 24
restarts in seven minutes) is told after 53 s of it; systemd itself gives up at five starts within 10 s."""

OOM_WINDOW = 900
"""LlamaServerOutOfMemory: goes on so long after the kill. A kill is over in a moment, the server is up again before
anybody reads the message, and it has to be read: each further one is another outage."""

# Speed.

SLOW_RATIO = 0.5
"""LlamaGenerationSlow: the mean speed of SLOW_WINDOW by the mean of SLOW_BASELINE is less than this. More requests at
once than usual are a reason by themselves (7.93 tokens per second alone were 2.15 for each of three), and worth
knowing; less than half is what users notice."""

SLOW_WINDOW = 1800
"""Long enough for a working day's pauses, short enough to be told within the hour."""

SLOW_BASELINE = 604800
"""A week has each hour of the day and each day of the week in it."""

SLOW_REQUESTS = 10
"""Fewer requests than this within SLOW_WINDOW say nothing: llama-server has four slots by default, and one burst of
four, each of them slower for the others, is no trend."""

SLOW_BASELINE_REQUESTS = 50
"""Fewer requests than this within SLOW_BASELINE say nothing: the mean of a week should not be that of the slow hour."""

SLOW_FOR = 900
"""Half of SLOW_WINDOW: one very slow request does not stay the mean for so long while others come."""

# Memory.

CREEP_STEP = 43200
"""LlamaMemoryCreeping: the process's own memory grew in each of the last two steps of this time. Half a day: a working
day's load is in one of them and a night in the other, and only a leak grows in both …"""

CREEP_STEP_RATIO = 0.02
"""… by more than this part of what it took at its start: less is the allocator's …"""

CREEP_RATIO = 0.1
"""… and is more than this part above it …"""

CREEP_BYTES = 9_663_676_416
"""… and more than this: 9 GiB. llama-server keeps up to 8 GiB of prompts in memory unless told otherwise (--cache-ram),
which a calm server takes days to fill, and that is no leak. With another limit this should be that limit and a GiB."""

CREEP_FOR = 3600

MAJOR_FAULTS_PER_SECOND = 50
"""LlamaWeightsReread: so many page faults that read from disk. The kernel reads up to 128 KiB at each, so that is 6
MB/s: on a disk that turns almost half of each second, on an SSD a hundredth, at which decoding begins to be slower.
Rules for whole hosts ask for 500 or 1,000, which a disk that turns never reaches."""

MAJOR_FAULTS_WINDOW = 600
"""A nightly backup pushes some weights out, and they are back within minutes."""

MAJOR_FAULTS_FOR = 600

MAJOR_FAULTS_SETTLED = 1800
"""A server younger than this still reads its weights for the first time: twice LOADING_FOR, as weights that are mapped
are read as they are used."""

UNIFIED_AVAILABLE_RATIO = 0.1
"""LlamaUnifiedMemoryLow: less of the host's memory than this is left. The same tenth as in common rules for hosts, and
for a reason of its own: on such hosts the end may be no kill but a driver that brings the whole host to a stop, and the
8 GiB of prompts that each server may yet keep are 6 % of 128 GB."""

UNIFIED_FOR = 300
"""A model that is being loaded can take more for a moment than it keeps."""

GPU_FREE_BYTES = 268_435_456
"""LlamaGpuMemoryLow: less of the GPU's memory is free. llama-server itself leaves a GiB where it may choose, and a good
configuration by hand left 1,214 MiB; the driver's own buffers (graphs, workspaces) come in tens of MiB."""

GPU_FOR = 300
"""As for a shared memory."""

# The exporter.

EXPORTER_DOWN_FOR = 120
"""KvexporterDown: eight scrapes of 15 s. An update restarts it within seconds, catching up on a journal included; and a
pool can fill up unseen in minutes."""

JOURNAL_FOR = 120
"""KvexporterJournalNotRead: a reading process that died is followed by another within a minute."""

JOURNAL_LAG_SECONDS = 60
"""KvexporterJournalNotRead: entries are read so late. journald itself is half a second late, and within a minute a pool
can have filled."""

COLLECTOR_FOR = 300
"""KvexporterCollectorFailing: nothing of it is urgent, and a source that was slow once is none that fails."""

COUNTS_WINDOW = 86400
"""KvexporterCountsLowerBound: goes on so long after entries were lost. It says that the day's counts are too low."""

STORE_WINDOW = 900
"""KvexporterStoreFailing: a write failed within this time …"""

STORE_FOR = 120
"""… and that has been so for this long: one failed write is made good by the next, a second later."""
