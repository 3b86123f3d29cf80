"""The model of one server: facts with their times go in, snapshots come out.

No clock, no I/O: every fact brings its time, so the same code runs live, on old journals and in tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvexporter.facts import (
    CgroupSample,
    Endpoint,
    PollReason,
    ProcessSample,
    UnitEvent,
    UnitExited,
    UnitFailed,
    UnitStarted,
    UnitStopped,
)
from kvexporter.forecast import Forecast, committed_tokens, demand_tokens
from kvexporter.geometry import PoolShape, StartupLog
from kvexporter.histogram import Histogram
from kvexporter.kv_bytes import KvBytes, kv_bytes
from kvexporter.ledger import Ledger, News
from kvexporter.llama import events as ev
from kvexporter.llama.exposition import UpstreamMetrics
from kvexporter.llama.launch import LaunchOptions
from kvexporter.llama.model_shape import ModelShape
from kvexporter.llama.props import Props
from kvexporter.llama.slots import SlotSample
from kvexporter.memory_at_ready import MemoryAtReady
from kvexporter.occupancy import OccupancyTime
from kvexporter.polls import PollHistory
from kvexporter.pool import Pool
from kvexporter.pool_geometry import Geometry
from kvexporter.slot_state import LONG_AGO
from kvexporter.snapshot import LifeSnapshot, PoolSnapshot, ServerSnapshot, ServerState, UpstreamCounters
from kvexporter.spells import Spells
from kvexporter.state import Availability
from kvexporter.unit_life import UnitLife

_INFO_LEVEL = 3

BEHIND_SECONDS = 75.0
"""A log whose lines of so long ago may still come is being caught up with. More than the patience with late lines, and
three words of the reading process: it says every 15 s that it has read all, so an idle log is not behind."""

LIFE_SECONDS = 1.0
"""A process's first line is logged within this time."""

CLOCK_STEP_SECONDS = 60.0
"""Facts may be so much ahead of the clock that looks at them."""

_OF_NO_SLOT = frozenset(
    {
        ev.HttpRequest,
        ev.Timing,
        ev.TimingHeader,
        ev.BatchUnplaced,
        ev.BatchRetried,
        ev.ContextExceeded,
        ev.DecodeFailed,
        ev.RequestFailed,
        ev.TaskCancelled,
    }
)
"""Events that tell nothing of slots, geometry or state by themselves, and are half of all."""


@dataclass(slots=True)
class ServerMemory:
    """What one server's model must not forget when the exporter is started anew: all that came from the log."""

    ledger: Ledger
    startup: StartupLog
    pool: Pool
    fill_seconds: Histogram
    state: ServerState | None
    model: str | None
    build: str | None
    verbosity: int | None
    info_seen: bool
    listening: tuple[str, int] | None
    has_log: bool = True
    unit_life: UnitLife = field(default_factory=UnitLife)


class Server:
    """One llama-server. `poll_interval` (seconds) is what staleness is measured by."""

    def __init__(
        self,
        name: str,
        *,
        unit: str | None = None,
        url: str | None = None,
        configured: Geometry | None = None,
        poll_interval: float = 1.0,
    ) -> None:
        self.name = name
        self.unit = unit
        self.url = url
        self.has_log = False
        """A line of the server's log was read; without it the log's counters do not exist."""
        self.has_unit = False
        """Systemd's words about the unit are read; without them the unit's counters do not exist."""
        self.props: Props | None = None
        self.listening: tuple[str, int] | None = None
        """(host, port) as the log told it."""
        self.lives = 0
        """How often the log showed a new process."""
        self._availability = Availability()
        self._spells = Spells()
        self._unit_life = UnitLife()
        self._oom_killed_at: float | None = None
        """When a kill showed in its control group."""
        self._shape = PoolShape(configured)
        self._pool = Pool()
        self._occupancy = OccupancyTime()
        self._forecast = Forecast()
        self._ledger = Ledger()
        self._geometry = Geometry()
        self._model: str | None = None
        self._build: str | None = None
        self._verbosity: int | None = None
        self._info_seen = False
        self._upstream: UpstreamMetrics | None = None
        self._process: ProcessSample | None = None
        self._cgroup: CgroupSample | None = None
        self._gpu_memory: dict[str, int] = {}
        self._logged_model: str | None = None
        self._model_shape: ModelShape | None = None
        self._kv = KvBytes()
        self.memory_at_ready = MemoryAtReady()
        self._polls = PollHistory(poll_interval)
        self._now = 0.0
        self._starting = False
        """The first line of a process was read, and nothing of its model yet."""
        self._life_at: float | None = None
        """When the log showed a new process last."""
        self._behind = False
        """The log is being caught up with: what it tells is of times past."""
        self._unsettled = False
        """Something has changed since the fill was worked out last."""

    # ---- facts -------------------------------------------------------------------------------------------------

    def line(self, line: ev.LogLine, at: float) -> None:
        """Take one line of the log."""
        self.has_log = True
        self._advance(at, log=True)
        if line.mentions_context_error:
            self._ledger.counters.error_lines += 1
        event = line.event
        if event is not None:
            self._event(event, at)
            if type(event) not in _OF_NO_SLOT or self._unsettled:
                self._settle(at)

    def unit_event(self, event: UnitEvent, at: float) -> None:
        """Take what systemd or journald says of the unit: not the server's log, whose lines may go elsewhere."""
        self.has_unit = True
        self._advance(at)
        self._ledger.unit(event, at, self._geometry, self._build)
        self._unit_life.observe(event, at)
        match event:
            case UnitStarted():
                self._availability.started()
            case UnitExited() | UnitFailed() | UnitStopped():
                self._gone()
            case _:
                pass
        self._settle(at)

    def slots_polled(self, samples: Iterable[SlotSample], at: float, *, asked: float | None = None) -> None:
        """Take one answer of `/slots` that came at `at` and was asked for at `asked`; it is true of a time between."""
        self._advance(at)
        samples = tuple(samples)
        self._answered("slots", at)
        if samples:
            contexts = [sample.context for sample in samples if sample.context]
            self._shape.api(len(samples), min(contexts) if contexts else None)
            self._reshape()
        self._pool.sample(samples, at if asked is None else asked, log_leads=self.log_tells_tasks, until=at)
        self._settle(at)

    def props_polled(self, props: Props, at: float) -> None:
        """Take one answer of `/props`."""
        self._advance(at)
        self.props = props
        self._answered("props", at, sleeping=props.sleeping)
        self._model = props.model or self._model
        self._build = props.build or self._build
        self._shape.api(props.total_slots, props.slot_context)
        self._reshape()
        self._settle(at)

    def metrics_polled(self, metrics: UpstreamMetrics, at: float) -> None:
        """Take one answer of upstream's `/metrics`."""
        self._advance(at)
        if not self._polls.fresh("metrics", at):
            self._spells.deferred(None, at)  # whether they waited all the time, nobody knows
        self._answered("metrics", at)
        self._upstream = metrics
        self._spells.deferred(metrics.requests_deferred, at)
        self._settle(at)

    def health_polled(self, at: float, *, sleeping: bool | None = None) -> None:
        """`/health` said that the server is well; forks also say whether it sleeps."""
        self._advance(at)
        # A sleeping server is well too: only the word for it says more.
        keeps = self._availability.state if sleeping is None else None
        self._answered("health", at, sleeping=True if keeps == "sleeping" else sleeping)
        self._settle(at)

    def poll_failed(self, endpoint: Endpoint, reason: PollReason, at: float) -> None:
        """An endpoint did not give what it should."""
        self._advance(at)
        self._polls.failed(endpoint, reason)
        self._availability.failed(reason, endpoint)
        if self.state == "down":
            self._gone()
        self._settle(at)

    def process_seen(self, sample: ProcessSample | None, at: float) -> None:
        """The server's process as /proc shows it; None: it is gone."""
        self._advance(at)
        was = self._process
        self._process = sample
        other = was is not None and (sample is None or (was.pid, was.start_time) != (sample.pid, sample.start_time))
        # Its log may have shown the next process already: then only the old one's end is news, and old.
        passed = was is not None and self._life_at is not None and self._life_at > was.start_time + LIFE_SECONDS
        if not (other and passed):
            if sample is None or other:
                self._gone()
            self._availability.process(sample is not None)
        if other:
            self._gpu_memory = {}
        if sample is None:
            self._cgroup = None
            self.memory_at_ready.gone()
        else:
            gpu = sum(self._gpu_memory.values()) if self._gpu_memory else None
            self.memory_at_ready.seen(sample, at, ready=self.state == "ready", gpu=gpu)
        self._settle(at)

    def cgroup_seen(self, sample: CgroupSample | None) -> None:
        """The control group of the server's process; None where it cannot be read."""
        before = self._cgroup.oom_kills if self._cgroup is not None else None
        if sample is not None and sample.oom_kills is not None and before is not None and sample.oom_kills > before:
            self._oom_killed_at = self._now
        self._cgroup = sample

    def gpu_memory_seen(self, held: dict[str, int]) -> None:
        """Bytes that the server's process holds by GPU; a GPU of which that is not known is left out."""
        self._gpu_memory = held

    def model_read(self, shape: ModelShape | None) -> None:
        """What the header of the model's file tells; None if it tells nothing."""
        self._model_shape = shape
        self._reshape()

    def launched_with(self, options: LaunchOptions | None) -> None:
        """The options of the process that runs now."""
        self._shape.options = options
        self._reshape()

    def tick(self, at: float, *, quiet: float = 0.0) -> None:
        """Time has come to `at` and nothing else was heard; lines of the last `quiet` seconds may still come."""
        if at < self._now - CLOCK_STEP_SECONDS:
            # Only the live clock ticks, and no fact is newer than it: the clock was set back. What came under the wrong
            # one would be the latest for ever, and all that comes now too old.
            self._now = at
            self._occupancy.restart(at)
            self._forecast.restart()
            self._spells = Spells()
        behind = quiet > BEHIND_SECONDS
        if self._behind and not behind:
            # The log told of times past; what is in force from now on begins now.
            self._now = max(self._now, at)
            self._occupancy.restart(self._now)
        self._behind = behind
        self._advance(at, log=False)
        incidents = self._ledger.incidents_seen
        if not behind:  # else the lines that go on with what is open may lie in the part that was not read yet
            self._ledger.tick(at - quiet, self._geometry, self._build)
        if self._ledger.incidents_seen != incidents:
            self._incident(at)
        self._settle(at)

    def conclude(self) -> None:
        """No more lines will come: an open cascade has the outcome that its lines tell."""
        self._ledger.conclude(self._geometry, self._build)

    # ---- over the exporter's own restarts ----------------------------------------------------------------------

    def memory(self) -> ServerMemory:
        """All that the log has told so far, and the time spent at each fill: the model's own parts, not copies."""
        return ServerMemory(
            ledger=self._ledger,
            startup=self._shape.startup,
            pool=self._pool,
            fill_seconds=self._occupancy.seconds,
            state=self.state,
            model=self._model,
            build=self._build,
            verbosity=self._verbosity,
            info_seen=self._info_seen,
            listening=self.listening,
            has_log=self.has_log,
            unit_life=self._unit_life,
        )

    def take_news(self) -> News:
        """Incidents and request sizes since the last call."""
        return self._ledger.take_news()

    def remember(self, memory: ServerMemory) -> None:
        """Go on where an earlier exporter stopped, before any fact is taken. The memory's parts become the model's."""
        self.has_log, self.has_unit = memory.has_log, True
        self._ledger = memory.ledger
        self._shape.startup = memory.startup
        self._pool = memory.pool
        self._pool.lose_polled()
        self._occupancy.seconds = memory.fill_seconds
        self._availability.state = memory.state
        self._model, self._build = memory.model, memory.build
        self._verbosity, self._info_seen = memory.verbosity, memory.info_seen
        self.listening = memory.listening
        self._unit_life = memory.unit_life
        self._reshape()

    # ---- what the wiring asks ----------------------------------------------------------------------------------

    @property
    def state(self) -> ServerState | None:
        """ready, loading, sleeping or down; None when nothing is known."""
        return self._availability.state

    @property
    def stopped_on_request(self) -> bool | None:
        """Its unit is stopped because systemd was asked to; None where systemd tells nothing of it."""
        return self._unit_life.stopped_on_request

    @property
    def busy(self) -> bool:
        """A slot runs a task, as far as is known."""
        return self._pool.processing

    @property
    def log_tells_tasks(self) -> bool:
        """The log shows launches and releases (verbosity 3 or more), so it can lead the polls."""
        if not self.has_log or (self._verbosity is not None and self._verbosity < _INFO_LEVEL):
            return False
        return self._info_seen

    @property
    def cascade_open(self) -> bool:
        """A failing batch has been read whose outcome is not known yet."""
        return self._ledger.cascade_open

    @property
    def behind(self) -> bool:
        """The log is being caught up with: what it tells is of times past."""
        return self._behind

    @property
    def incidents_seen(self) -> int:
        """Incidents so far."""
        return self._ledger.incidents_seen

    @property
    def slots_left_out(self) -> int:
        """Times that a slot was not taken in because there were too many."""
        return self._pool.left_out

    @property
    def slots_seen(self) -> bool:
        """`/slots` has answered in this life."""
        return "slots" in self._polls.last

    @property
    def model_names(self) -> tuple[str, ...]:
        """The model's file as the log, `/props` and the command line name it, the most certain first."""
        options = self._shape.options
        names = (
            self._logged_model,
            self.props.model_path if self.props is not None else None,
            options.model if options is not None else None,
        )
        return tuple(dict.fromkeys(name for name in names if name))

    @property
    def process(self) -> ProcessSample | None:
        """The process as last seen."""
        return self._process

    # ---- the view ----------------------------------------------------------------------------------------------

    def snapshot(self, at: float) -> ServerSnapshot:
        """All that is known at `at`; what is too old is left out."""
        now = max(at, self._now)
        counters = self._ledger.counters.snapshot(of_unit=(self.has_log or self.has_unit) and self.unit is not None)
        live = self.state not in ("down", "loading")
        told = live and self._tasks_told(now)
        slots = self._pool.snapshot(now, self._oldest(now)) if told else ()
        upstream = self._upstream if live and self._upstream is not None else UpstreamMetrics()
        fresh = self._polls.fresh("metrics", now)
        deferred = _count(upstream.requests_deferred) if fresh else None
        return ServerSnapshot(
            name=self.name,
            unit=self.unit,
            url=self.url,
            model=self._model,
            build=self._build,
            up=self._availability.up,
            state=self.state,
            life=self._life(deferred),
            requests_processing=self._requests_processing(told, upstream if fresh else None),
            requests_deferred=deferred,
            geometry=self._geometry,
            kv_cache_bytes=self._kv.cache,
            kv_bytes_per_token=self._kv.per_token,
            kv_bytes_source=self._kv.source,
            kv_header_bytes_per_token=self._kv.header_per_token,
            slots=slots,
            pool=self._pool_snapshot(now) if told else None,
            fill_seconds=self._occupancy.snapshot(),
            fill_history=self._occupancy.history(self._now if self._behind else now),
            counters=counters,
            has_log=self.has_log,
            last_incident=self._ledger.last_pool_incident,
            incidents=tuple(self._ledger.incidents),
            open_incident=self._ledger.open_incident(self._geometry, self._build),
            pressure_at=self._ledger.pressure_at,
            cascade_since=self._ledger.cascade_since,
            request_tokens=self._ledger.requests.tokens.snapshot() if self.has_log else None,
            request_prompt_tokens=self._ledger.requests.prompt_tokens.snapshot() if self.has_log else None,
            prompt_speed=self._ledger.requests.prompt_speed.snapshot() if self.has_log else None,
            generation_speed=self._ledger.requests.generation_speed.snapshot() if self.has_log else None,
            upstream=_upstream_counters(upstream),
            process=self._process,
            cgroup=self._cgroup,
            gpu_process_memory=self._gpu_memory,
            memory_at_ready=self.memory_at_ready.at_ready(),
            memory_growth=self.memory_at_ready.growth(),
            last_poll=dict(self._polls.last),
            poll_failures=dict(self._polls.failures),
            failing=dict(self._polls.failing),
        )

    def _life(self, deferred: int | None) -> LifeSnapshot:
        """What befell it lately; `deferred`: requests that wait now."""
        spells, unit = self._spells, self._unit_life
        kills = [at for at in (unit.oom_killed_at, self._oom_killed_at) if at is not None]
        return LifeSnapshot(
            down_since=spells.down_since,
            loading_since=spells.loading_since,
            deferred_since=spells.deferred_since if deferred else None,
            stopped_on_request=unit.stopped_on_request,
            restarts_at=tuple(unit.restarts_at),
            exited_at=unit.exited_at,
            exit_code=unit.exit_code,
            oom_killed_at=max(kills, default=None),
        )

    # ---- inside ------------------------------------------------------------------------------------------------

    def _event(self, event: ev.Event, at: float) -> None:
        incidents = self._ledger.incidents_seen
        self._ledger.event(event, at, self._geometry, self._build)
        if type(event) not in _OF_NO_SLOT:
            state = self.state
            self._availability.log(event)
            if self._shape.startup.observe(event):
                self._startup_event(event, at)
            else:
                self._task_event(event, at)
            if self.state != state:
                self._reshape()
        if self._ledger.incidents_seen != incidents:
            self._incident(at)

    def _startup_event(self, event: ev.Event, at: float) -> None:
        match event:
            case ev.ProcessStarting(build):
                if not self._starting:
                    self._new_life(at)
                self._build = build or self._build
            case ev.ModelLoading(model):
                self._starting = False
                self._pool.restart()
                self._shape.forget_api()
                self._model = model or self._model
                self._logged_model = model
            case ev.PoolInitialized() | ev.SlotsInitializing():
                self._starting = False
                self._info_seen = True
                self._pool.restart()
        self._reshape()

    def _task_event(self, event: ev.Event, at: float) -> None:
        pool = self._pool
        match event:
            case ev.GenerationTick():
                pool.answered(event.slot, event.task, event.decoded, at)
            case ev.PromptProgress():
                pool.reading(event.slot, event.task, event.tokens, event.progress, event.step, at)
            case ev.PromptReused():
                pool.held(event.slot, event.task, event.tokens, at)
            case ev.PromptDone():
                pool.read(event.slot, event.task, event.tokens, at)
            case ev.SlotChosen():
                pool.choose(event.slot, event.similarity, event.kept, event.step)
            case ev.TaskLaunched():
                self._info_seen = True
                pool.launch(event.slot, event.task, at, child=event.child)
                if self._clears_idle_slots():
                    pool.clear_idle(but=event.slot, at=at)
            case ev.Released():
                self._info_seen = True
                pool.release(event.slot, event.task, event.tokens, at)
            case ev.PromptStarted():
                pool.prompt(event.slot, event.task, event.prompt_tokens, at)
            case ev.AllSlotsIdle():
                pool.all_idle(at)
            case ev.ContextShifted():
                pool.shift(event.slot, event.task, event.discarded, event.kept, at)
            case ev.SlotPurged() | ev.SlotCleared():
                pool.clear(event.slot, at)
            case ev.Listening():
                self.listening = (event.host, event.port)
            case ev.Sleeping() | ev.Waking():
                pool.restart()
            case ev.Verbosity():
                self._verbosity = event.level
            case ev.Stopping():
                self._gone()
            case _:
                pass

    def _clears_idle_slots(self) -> bool:
        """Builds that print the one start-up line drop idle slots' caches when a task starts, and say nothing of it."""
        options = self._shape.options
        if options is not None and (options.cache_idle_slots is False or options.cache_ram_mib == 0):
            return False
        return self._shape.startup.drops_idle_caches and self._geometry.shared is True

    def _incident(self, at: float) -> None:
        """An incident has ended: the pool was full, however short, and some builds empty the failed slots' caches."""
        self._unsettled = True
        incident = self._ledger.incidents[-1]
        if incident.cause == "pool" and incident.capacity:
            held = incident.capacity if incident.sum_tokens is None else min(incident.sum_tokens, incident.capacity)
            self._occupancy.touch(held / incident.capacity, at)
        running = self._pool.running()
        for slot in self._ledger.failed_slots:
            if slot not in running:
                self._pool.clear(slot, at)

    def _reshape(self) -> None:
        """Something about the pool's shape was learnt."""
        self._geometry = self._shape.geometry()
        self._kv = kv_bytes(self._shape.startup, self._model_shape, self._shape.options, self._geometry.capacity)
        self._unsettled = True
        if self._geometry.slots is not None and self.log_tells_tasks and self.state not in ("down", "loading"):
            self._pool.expect(self._geometry.slots)

    def _answered(self, endpoint: Endpoint, at: float, *, sleeping: bool | None = None) -> None:
        was = self.state
        self._polls.answered(endpoint, at)
        if endpoint != "metrics":  # which any exporter has
            self._availability.answered(sleeping=sleeping)
            self._unit_life.answered()
        if self.state == "sleeping" and was != "sleeping":
            self._pool.restart()

    def _new_life(self, at: float) -> None:
        """A new process: what was known of the old one's slots and numbers is gone.

        Its first line comes two or three times on some builds; only a model's loading ends a start.
        """
        self.lives += 1
        if self.lives > 1:
            self._shape.options = None  # the old process's; the new one's are looked for
        self._starting, self._life_at = True, at
        self._forecast.restart()
        self.listening = self.props = None
        self._pool.restart()
        self._upstream = None
        self._shape.forget_api()
        self._verbosity = None
        self._info_seen = False

    def _gone(self) -> None:
        """The process ended."""
        self._availability.stopped()
        self.props = None
        self._shape.forget_api()
        self._pool.forget()
        self._upstream = None

    def _advance(self, at: float, *, log: bool = False) -> None:
        """Let time pass: what was in force is accounted for; by the log's own clock while it is behind."""
        if at > self._now and (log or not self._behind):
            self._occupancy.advance(at)
            self._now = at

    def _settle(self, at: float) -> None:
        """After a fact: the fill that is in force from now on."""
        self._unsettled = False
        self._spells.available(self._availability.up, self._availability.state, at)
        capacity = self._geometry.capacity
        fill = None
        if capacity and self._availability.state not in ("down", "loading", None) and self._tasks_told(at):
            processing = self._processing_tokens(at)
            fill = processing / capacity if processing is not None else None
            if processing is not None and not (self._behind and at > self._now):
                self._forecast.observe(self._pool.slots.values(), self._geometry, at)
        self._occupancy.set(fill, max(at, self._now))

    def _tasks_told(self, now: float) -> bool:
        """Something tells which slots run tasks: the log, or polls that still come."""
        if self._availability.state == "sleeping" or self.log_tells_tasks:
            return True
        return "slots" in self._polls.last and not self._polls.lost("slots", now)

    def _oldest(self, now: float) -> float:
        """Running tasks' sizes from before this are too old: polls told them, and have stopped coming."""
        decoding = self.log_tells_tasks and self._pool.reads_on
        return now - self._polls.patience if self._polls.lost("slots", now, decoding=decoding) else LONG_AGO

    def _processing_tokens(self, now: float) -> int | None:
        return self._pool.processing_tokens(self._oldest(now), now - self._polls.patience)

    def _pool_snapshot(self, now: float) -> PoolSnapshot | None:
        processing, idle = self._processing_tokens(now), self._pool.idle_tokens()
        if processing is None:
            return None
        capacity, context = self._geometry.capacity, self._geometry.slot_context
        slots = self._pool.slots.values()
        committed, demand = committed_tokens(slots, context), demand_tokens(slots, context)
        return PoolSnapshot(
            processing_tokens=processing,
            idle_tokens=idle,
            fill_ratio=processing / capacity if capacity else None,
            resident_ratio=(processing + idle) / capacity if capacity and idle is not None else None,
            fill_peak_ratio=self._occupancy.peak(now),
            committed_tokens=committed,
            committed_ratio=committed / capacity if capacity else None,
            demand_tokens=demand,
            demand_ratio=demand / capacity if capacity else None,
            seconds_to_full=self._forecast.seconds_to_full(slots, processing, self._geometry, now),
        )

    def _requests_processing(self, told: bool, upstream: UpstreamMetrics | None) -> int | None:
        if self.state in ("down", "loading"):
            return None
        if told:
            return len(self._pool.running())
        return _count(upstream.requests_processing) if upstream is not None else None


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)


def _upstream_counters(metrics: UpstreamMetrics) -> UpstreamCounters:
    return UpstreamCounters(
        prompt_tokens=metrics.prompt_tokens_total,
        prompt_tokens_cached=metrics.prompt_tokens_cached_total,
        prompt_seconds=metrics.prompt_seconds_total,
        predicted_tokens=metrics.predicted_tokens_total,
        predicted_seconds=metrics.predicted_seconds_total,
        decode_calls=metrics.decode_calls_total,
        draft_tokens=metrics.draft_tokens_total,
        draft_accepted_tokens=metrics.draft_accepted_tokens_total,
    )
