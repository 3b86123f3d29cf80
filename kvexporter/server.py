"""The model of one server: facts with their times go in, snapshots come out.

No clock, no I/O: every fact brings its time, so the same code runs live, on old journals and in tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvexporter.facts import (
    Endpoint,
    PollReason,
    ProcessSample,
    UnitEvent,
    UnitExited,
    UnitFailed,
    UnitStarted,
    UnitStopped,
)
from kvexporter.geometry import PoolShape, StartupLog
from kvexporter.histogram import Histogram
from kvexporter.ledger import Ledger
from kvexporter.llama import events as ev
from kvexporter.llama.exposition import UpstreamMetrics
from kvexporter.llama.launch import LaunchOptions
from kvexporter.llama.props import Props
from kvexporter.llama.slots import SlotSample
from kvexporter.occupancy import OccupancyTime
from kvexporter.polls import PollHistory
from kvexporter.pool import Pool
from kvexporter.snapshot import Geometry, PoolSnapshot, ServerSnapshot, ServerState, UpstreamCounters
from kvexporter.state import Availability

_INFO_LEVEL = 3


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
        """The server's log is read; without it the log's counters do not exist."""
        self.props: Props | None = None
        self.listening: tuple[str, int] | None = None
        """(host, port) as the log told it."""
        self.lives = 0
        """How often the log showed a new process."""
        self._availability = Availability()
        self._shape = PoolShape(configured)
        self._pool = Pool()
        self._occupancy = OccupancyTime()
        self._ledger = Ledger()
        self._geometry = Geometry()
        self._model: str | None = None
        self._build: str | None = None
        self._verbosity: int | None = None
        self._info_seen = False
        self._upstream: UpstreamMetrics | None = None
        self._process: ProcessSample | None = None
        self._polls = PollHistory(poll_interval)
        self._now = 0.0

    # ---- facts -------------------------------------------------------------------------------------------------

    def line(self, line: ev.LogLine, at: float) -> None:
        """Take one line of the log."""
        self.has_log = True
        self._advance(at)
        if line.mentions_context_error:
            self._ledger.counters.error_lines += 1
        event = line.event
        if event is not None:
            self._event(event, at)
        self._settle(at)

    def unit_event(self, event: UnitEvent, at: float) -> None:
        """Take what systemd or journald says of the unit."""
        self.has_log = True
        self._advance(at)
        self._ledger.unit(event, at, self._geometry, self._build)
        match event:
            case UnitStarted():
                self._availability.started()
            case UnitExited() | UnitFailed() | UnitStopped():
                self._gone()
            case _:
                pass
        self._settle(at)

    def slots_polled(self, samples: Iterable[SlotSample], at: float) -> None:
        """Take one answer of `/slots`."""
        self._advance(at)
        samples = tuple(samples)
        self._answered("slots", at)
        if samples:
            contexts = [sample.context for sample in samples if sample.context]
            self._shape.api(len(samples), min(contexts) if contexts else None)
            self._reshape()
        self._pool.sample(samples, at, log_leads=self.log_tells_tasks)
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
        self._answered("metrics", at)
        self._upstream = metrics
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
        self._availability.failed(reason)
        if self.state == "down":
            self._gone()
        self._settle(at)

    def process_seen(self, sample: ProcessSample | None, at: float) -> None:
        """The server's process as /proc shows it; None: it is gone."""
        self._advance(at)
        was = self._process
        self._process = sample
        if sample is None or (was is not None and (was.pid, was.start_time) != (sample.pid, sample.start_time)):
            self._gone()
        self._availability.process(sample is not None)
        self._settle(at)

    def launched_with(self, options: LaunchOptions | None) -> None:
        """The options of the process that runs now."""
        self._shape.options = options
        self._reshape()

    def tick(self, at: float, *, quiet: float = 0.0) -> None:
        """Time has come to `at` and nothing else was heard; lines of the last `quiet` seconds may still come."""
        self._advance(at)
        self._ledger.tick(at - quiet, self._geometry, self._build)
        self._clear_failed()
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
        )

    def remember(self, memory: ServerMemory) -> None:
        """Go on where an earlier exporter stopped, before any fact is taken. The memory's parts become the model's."""
        self.has_log = True
        self._ledger = memory.ledger
        self._shape.startup = memory.startup
        self._pool = memory.pool
        self._pool.lose_polled()
        self._occupancy.seconds = memory.fill_seconds
        self._availability.state = memory.state
        self._model, self._build = memory.model, memory.build
        self._verbosity, self._info_seen = memory.verbosity, memory.info_seen
        self.listening = memory.listening
        self._reshape()

    # ---- what the wiring asks ----------------------------------------------------------------------------------

    @property
    def state(self) -> ServerState | None:
        """ready, loading, sleeping or down; None when nothing is known."""
        return self._availability.state

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
    def slots_seen(self) -> bool:
        """`/slots` has answered in this life."""
        return "slots" in self._polls.last

    @property
    def process(self) -> ProcessSample | None:
        """The process as last seen."""
        return self._process

    # ---- the view ----------------------------------------------------------------------------------------------

    def snapshot(self, at: float) -> ServerSnapshot:
        """All that is known at `at`; what is too old is left out."""
        now = max(at, self._now)
        counters = self._ledger.counters.snapshot(of_unit=self.has_log and self.unit is not None)
        live = self.state not in ("down", "loading")
        polled = not (self._pool.polled and self._polls.lost("slots", now))
        slots = self._pool.snapshot(now, polled_tokens=polled) if live else ()
        upstream = self._upstream if live and self._upstream is not None else UpstreamMetrics()
        fresh = self._polls.fresh("metrics", now)
        return ServerSnapshot(
            name=self.name,
            unit=self.unit,
            url=self.url,
            model=self._model,
            build=self._build,
            up=self._availability.up,
            state=self.state,
            requests_processing=self._requests_processing(slots, upstream if fresh else None),
            requests_deferred=_count(upstream.requests_deferred) if fresh else None,
            geometry=self._geometry,
            kv_cache_bytes=self._shape.startup.cache_bytes,
            kv_bytes_per_token=self._shape.startup.bytes_per_token(),
            slots=slots,
            pool=self._pool_snapshot(now) if live and polled else None,
            fill_seconds=self._occupancy.snapshot(),
            counters=counters,
            has_log=self.has_log,
            last_incident=self._ledger.last_pool_incident,
            incidents=tuple(self._ledger.incidents),
            request_tokens=self._ledger.requests.tokens.snapshot() if self.has_log else None,
            request_prompt_tokens=self._ledger.requests.prompt_tokens.snapshot() if self.has_log else None,
            prompt_speed=self._ledger.requests.prompt_speed.snapshot() if self.has_log else None,
            generation_speed=self._ledger.requests.generation_speed.snapshot() if self.has_log else None,
            upstream=_upstream_counters(upstream),
            process=self._process,
            last_poll=dict(self._polls.last),
            poll_failures=dict(self._polls.failures),
        )

    # ---- inside ------------------------------------------------------------------------------------------------

    def _event(self, event: ev.Event, at: float) -> None:
        self._ledger.event(event, at, self._geometry, self._build)
        self._availability.log(event)
        if self._shape.startup.observe(event):
            self._startup_event(event)
        elif not isinstance(event, ev.Timing | ev.TimingHeader):
            self._task_event(event, at)
        self._clear_failed()

    def _startup_event(self, event: ev.Event) -> None:
        match event:
            case ev.ProcessStarting(build):
                self._new_life()
                self._build = build or self._build
            case ev.ModelLoading(model):
                self._pool.restart()
                self._shape.forget_api()
                self._model = model or self._model
            case ev.PoolInitialized() | ev.SlotsInitializing():
                self._info_seen = True
                self._pool.restart()
        self._reshape()

    def _task_event(self, event: ev.Event, at: float) -> None:
        match event:
            case ev.TaskLaunched(slot, task, _):
                self._info_seen = True
                self._pool.launch(slot, task, at)
                if self._clears_idle_slots():
                    self._pool.clear_idle(but=slot)
            case ev.PromptStarted(slot, task, _, prompt_tokens):
                self._pool.prompt(slot, task, prompt_tokens, at)
            case ev.PromptReused(slot, task, tokens) | ev.PromptDone(slot, task, tokens):
                self._pool.held(slot, task, tokens, at)
            case ev.PromptProgress(slot, task, tokens, _, _):
                self._pool.held(slot, task, tokens, at)
            case ev.GenerationTick(slot, task, decoded, _):
                self._pool.answered(slot, task, decoded, at)
            case ev.Released(slot, task, tokens, _):
                self._info_seen = True
                self._pool.release(slot, task, tokens)
            case ev.ContextShifted(slot, _, discarded):
                self._pool.shift(slot, discarded, at)
            case ev.SlotPurged(slot, _) | ev.SlotCleared(slot, _):
                self._pool.clear(slot)
            case ev.AllSlotsIdle():
                self._pool.all_idle()
            case ev.Listening(host, port, _):
                self.listening = (host, port)
            case ev.Sleeping() | ev.Waking():
                self._pool.restart()
            case ev.Verbosity(level):
                self._verbosity = level
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

    def _clear_failed(self) -> None:
        """An incident has ended on a build that empties the failed slots' caches."""
        running = self._pool.running()
        for slot in self._ledger.failed_slots:
            if slot not in running:
                self._pool.clear(slot)

    def _reshape(self) -> None:
        """Something about the pool's shape was learnt."""
        self._geometry = self._shape.geometry()
        if self._geometry.slots is not None and self.state not in ("down", "loading"):
            self._pool.expect(self._geometry.slots)

    def _answered(self, endpoint: Endpoint, at: float, *, sleeping: bool | None = None) -> None:
        was = self.state
        self._polls.answered(endpoint, at)
        self._availability.answered(sleeping=sleeping)
        if self.state == "sleeping" and was != "sleeping":
            self._pool.restart()

    def _new_life(self) -> None:
        """A new process: what was known of the old one's slots and numbers is gone."""
        self.lives += 1
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

    def _advance(self, at: float) -> None:
        """Let time pass: what was in force since the last fact is accounted for."""
        if at > self._now:
            self._occupancy.advance(at)
            self._now = at

    def _settle(self, at: float) -> None:
        """After a fact: the fill that is in force from now on."""
        capacity = self._geometry.capacity
        fill = None
        if capacity and self.state not in ("down", "loading", None):
            processing, _ = self._pool.tokens()
            fill = processing / capacity if processing is not None else None
        self._occupancy.set(fill, max(at, self._now))

    def _pool_snapshot(self, now: float) -> PoolSnapshot | None:
        processing, idle = self._pool.tokens()
        if processing is None:
            return None
        capacity = self._geometry.capacity
        return PoolSnapshot(
            processing_tokens=processing,
            idle_tokens=idle,
            fill_ratio=processing / capacity if capacity else None,
            resident_ratio=(processing + idle) / capacity if capacity and idle is not None else None,
            fill_peak_ratio=self._occupancy.peak(now),
        )

    def _requests_processing(self, slots: tuple[object, ...], upstream: UpstreamMetrics | None) -> int | None:
        if self.state in ("down", "loading"):
            return None
        if slots:
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
