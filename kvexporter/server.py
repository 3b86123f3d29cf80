"""The model of one server: facts with their times go in, snapshots come out.

No clock, no I/O: every fact brings its time, so the same code runs live, on old journals and in tests.

What it is made of is in `server_parts.py`, what each kind of fact changes in `server_log.py`, `server_answers.py`,
`server_process.py` and `server_time.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvexporter.facts import CgroupSample, Endpoint, PollReason, ProcessSample, UnitEvent
from kvexporter.geometry import PoolShape
from kvexporter.ledger import News
from kvexporter.llama import events as ev
from kvexporter.llama.exposition import UpstreamMetrics
from kvexporter.llama.launch import LaunchOptions
from kvexporter.llama.model_shape import ModelShape
from kvexporter.llama.props import Props
from kvexporter.llama.slots import SlotSample
from kvexporter.memory_at_ready import MemoryAtReady
from kvexporter.polls import PollHistory
from kvexporter.pool_geometry import Geometry
from kvexporter.server_answers import take_failure, take_health, take_metrics, take_props, take_slots
from kvexporter.server_fill import settle
from kvexporter.server_log import take_event
from kvexporter.server_memory import ServerMemory, memory_of, remember
from kvexporter.server_parts import ServerParts
from kvexporter.server_process import take_cgroup, take_process, take_unit_event
from kvexporter.server_snapshot import snapshot_of
from kvexporter.server_time import pass_log_time, pass_time, tick
from kvexporter.snapshot import ServerSnapshot, ServerState


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
        self._parts = ServerParts(PoolShape(configured), PollHistory(poll_interval))

    # ---- facts -------------------------------------------------------------------------------------------------

    def line(self, line: ev.LogLine, at: float) -> None:
        """Take one line of the log."""
        parts = self._parts
        parts.has_log = True
        pass_log_time(parts, at)
        if line.mentions_context_error:
            parts.ledger.counters.error_lines += 1
        if line.event is not None:
            take_event(parts, line.event, at)

    def unit_event(self, event: UnitEvent, at: float) -> None:
        """Take what systemd or journald says of the unit: not the server's log, whose lines may go elsewhere."""
        self._parts.has_unit = True
        pass_time(self._parts, at)
        take_unit_event(self._parts, event, at)
        settle(self._parts, at)

    def slots_polled(self, samples: Iterable[SlotSample], at: float, *, asked: float | None = None) -> None:
        """Take one answer of `/slots` that came at `at` and was asked for at `asked`; it is true of a time between."""
        pass_time(self._parts, at)
        take_slots(self._parts, samples, at, asked)
        settle(self._parts, at)

    def props_polled(self, props: Props, at: float) -> None:
        """Take one answer of `/props`."""
        pass_time(self._parts, at)
        take_props(self._parts, props, at)
        settle(self._parts, at)

    def metrics_polled(self, metrics: UpstreamMetrics, at: float) -> None:
        """Take one answer of upstream's `/metrics`."""
        pass_time(self._parts, at)
        take_metrics(self._parts, metrics, at)
        settle(self._parts, at)

    def health_polled(self, at: float, *, sleeping: bool | None = None) -> None:
        """`/health` said that the server is well; forks also say whether it sleeps."""
        pass_time(self._parts, at)
        take_health(self._parts, at, sleeping)
        settle(self._parts, at)

    def poll_failed(self, endpoint: Endpoint, reason: PollReason, at: float) -> None:
        """An endpoint did not give what it should."""
        pass_time(self._parts, at)
        take_failure(self._parts, endpoint, reason)
        settle(self._parts, at)

    def process_seen(self, sample: ProcessSample | None, at: float) -> None:
        """The server's process as /proc shows it; None: it is gone."""
        pass_time(self._parts, at)
        take_process(self._parts, sample, at)
        settle(self._parts, at)

    def cgroup_seen(self, sample: CgroupSample | None) -> None:
        """The control group of the server's process; None where it cannot be read."""
        take_cgroup(self._parts, sample)

    def gpu_memory_seen(self, held: dict[str, int]) -> None:
        """Bytes that the server's process holds by GPU; a GPU of which that is not known is left out."""
        self._parts.gpu_memory = held

    def model_read(self, shape: ModelShape | None) -> None:
        """What the header of the model's file tells; None if it tells nothing."""
        self._parts.model_shape = shape
        self._parts.reshape()

    def launched_with(self, options: LaunchOptions | None) -> None:
        """The options of the process that runs now."""
        self._parts.shape.options = options
        self._parts.reshape()

    def tick(self, at: float, *, quiet: float = 0.0) -> None:
        """Time has come to `at` and nothing else was heard; lines of the last `quiet` seconds may still come."""
        tick(self._parts, at, quiet)

    def conclude(self) -> None:
        """No more lines will come: an open cascade has the outcome that its lines tell."""
        self._parts.ledger.conclude(self._parts.geometry, self._parts.build)

    # ---- over the exporter's own restarts ----------------------------------------------------------------------

    def memory(self) -> ServerMemory:
        """All that the log has told so far, and the time spent at each fill: the model's own parts, not copies."""
        return memory_of(self._parts)

    def take_news(self) -> News:
        """Incidents and request sizes since the last call."""
        return self._parts.ledger.take_news()

    def remember(self, memory: ServerMemory) -> None:
        """Go on where an earlier exporter stopped, before any fact is taken. The memory's parts become the model's."""
        remember(self._parts, memory)

    # ---- the view ----------------------------------------------------------------------------------------------

    def snapshot(self, at: float) -> ServerSnapshot:
        """All that is known at `at`; what is too old is left out."""
        return snapshot_of(self._parts, at, name=self.name, unit=self.unit, url=self.url)

    # ---- what the wiring asks ----------------------------------------------------------------------------------

    @property
    def has_log(self) -> bool:
        """A line of the server's log was read; without it the log's counters do not exist."""
        return self._parts.has_log

    @property
    def has_unit(self) -> bool:
        """Systemd's words about the unit are read; without them the unit's counters do not exist."""
        return self._parts.has_unit

    @property
    def state(self) -> ServerState | None:
        """ready, loading, sleeping or down; None when nothing is known."""
        return self._parts.availability.state

    @property
    def stopped_on_request(self) -> bool | None:
        """Its unit is stopped because systemd was asked to; None where systemd tells nothing of it."""
        return self._parts.unit_life.stopped_on_request

    @property
    def busy(self) -> bool:
        """A slot runs a task, as far as is known."""
        return self._parts.pool.processing

    @property
    def behind(self) -> bool:
        """The log is being caught up with: what it tells is of times past."""
        return self._parts.behind

    @property
    def log_tells_tasks(self) -> bool:
        """The log shows launches and releases (verbosity 3 or more), so it can lead the polls."""
        return self._parts.log_tells_tasks

    @property
    def cascade_open(self) -> bool:
        """A failing batch has been read whose outcome is not known yet."""
        return self._parts.ledger.cascade_open

    @property
    def incidents_seen(self) -> int:
        """Incidents so far."""
        return self._parts.ledger.incidents_seen

    @property
    def lives(self) -> int:
        """How often the log showed a new process."""
        return self._parts.lives

    @property
    def listening(self) -> tuple[str, int] | None:
        """(host, port) as the log told it."""
        return self._parts.listening

    @property
    def model_names(self) -> tuple[str, ...]:
        """The model's file as the log, `/props` and the command line name it, the most certain first."""
        parts, options = self._parts, self._parts.shape.options
        names = (
            parts.logged_model,
            parts.props.model_path if parts.props is not None else None,
            options.model if options is not None else None,
        )
        return tuple(dict.fromkeys(name for name in names if name))

    @property
    def props(self) -> Props | None:
        """The latest answer of `/props` of the process that runs now."""
        return self._parts.props

    @property
    def slots_seen(self) -> bool:
        """`/slots` has answered in this life."""
        return "slots" in self._parts.polls.last

    @property
    def slots_left_out(self) -> int:
        """Times that a slot was not taken in because there were too many."""
        return self._parts.pool.left_out

    @property
    def process(self) -> ProcessSample | None:
        """The process as last seen."""
        return self._parts.process

    @property
    def memory_at_ready(self) -> MemoryAtReady:
        """What its process took once it had settled."""
        return self._parts.memory_at_ready
