"""One server's log as a diagnosis reads it: the daemon's own books, without who holds how much at each moment.

No clock, no I/O. Unlike the daemon's, it remembers the size of every request, and what all incidents had in common.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from kvexporter.facts import UnitEvent, UnitExited, UnitFailed, UnitOutOfMemory, UnitRestartScheduled
from kvexporter.geometry import PoolShape
from kvexporter.ledger import Ledger
from kvexporter.llama import events as ev
from kvexporter.llama.events import LogLine
from kvexporter.llama.slots import MOST_SLOTS
from kvexporter.log_demand import LogDemand
from kvexporter.pool_geometry import Geometry
from kvexporter.snapshot import Counters, Incident

_MOST_REQUESTS_WAITING = 4_000
"""Sizes of ended requests that may wait in the books, which keep only so many."""
_MOST_CLIENTS = 10_000
_STARTS = (ev.ProcessStarting, ev.ModelLoading)
"""They make the pool unknown until it is cut anew."""


@dataclass(frozen=True, slots=True)
class IncidentTotals:
    """What all incidents had in common, also of those that are not shown."""

    adding_up: int = 0
    """Excess and unplaced batch are equal."""
    not_adding_up: int = 0
    alone: int = 0
    """Of a shared pool that one request filled by itself."""
    biggest: dict[int, int] = field(default_factory=dict)
    """Slot → incidents in which it held most."""
    since_shape: int = 0
    """Of them since the pool was last cut differently; all, if it never was."""


@dataclass(frozen=True, slots=True)
class ServerStory:
    """What one server's log told, from its first line to its last. None: unknown."""

    name: str
    unit: str | None
    build: str | None
    model: str | None
    geometry: Geometry
    counters: Counters
    starts: int
    """New processes that the log shows."""
    first: float | None
    last: float | None
    """Times of the first and the last line that was read."""
    incidents: tuple[Incident, ...]
    """The latest ones, oldest first."""
    totals: IncidentTotals
    requests_ended: int
    request_sizes: dict[int, int]
    """Size of a whole request in tokens → requests; those that held none are not among them."""
    refused_sizes: dict[int, int]
    """Size of a request that was larger than its slot → requests, where the log told it."""
    clients: dict[tuple[str, bool], int] = field(default_factory=dict)
    """(address, failed) → requests for completions."""
    verbosity: int | None = None
    shape_changed: float | None = None
    """When the pool was last cut differently."""
    context_train: int | None = None
    kv_bytes_per_token: float | None = None
    kv_cache_bytes: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    since_start: bool = False
    """Times are seconds since the server's start, as a bare log has no others."""
    gap: bool = False
    """Entries could not be read."""

    @property
    def has_times(self) -> bool:
        """The log tells when its lines were written; older builds' own lines do not."""
        return not self.since_start or bool(self.last)


class LogBook:
    """Takes one server's lines in order. `last` (incidents): how many of the latest are kept whole."""

    def __init__(self, name: str, unit: str | None = None, *, last: int = 20) -> None:
        self.name = name
        self.unit = unit
        self.told = False
        """The server itself said something, or systemd that it ended."""
        self._ledger = Ledger()
        self._shape = PoolShape(None)
        self._geometry = Geometry()
        self._learnt = False
        """A start-up line was read since the geometry was worked out."""
        self._build: str | None = None
        self._model: str | None = None
        self._verbosity: int | None = None
        self._starting = False
        self._starts = 0
        self._first: float | None = None
        self._last: float | None = None
        self._incidents: deque[Incident] = deque(maxlen=last)
        self._seen = 0
        self._adding_up: Counter[bool] = Counter()
        self._alone = 0
        self._biggest: Counter[int] = Counter()
        self._sizes: Counter[int] = Counter()
        self._refused: Counter[int] = Counter()
        self._clients: Counter[tuple[str, bool]] = Counter()
        self._shape_known: Geometry | None = None
        """The last geometry that was known as a whole."""
        self._shape_changed: float | None = None
        self._before_shape = 0

    def sifted(self) -> None:
        """Lines about the progress of prompts and answers are left out, so nothing is said of what was needed when."""
        self._ledger.demand = _NoDemand()

    def line(self, line: LogLine, at: float) -> None:
        """Take one line of the log."""
        self.told = True
        self.saw(at)
        ledger = self._ledger
        if line.mentions_context_error:
            ledger.counters.error_lines += 1
        event = line.event
        if event is None:
            return
        if type(event) in _STARTS:
            self._known_geometry(at)  # of the process before, which nothing may have asked for yet
        starting = self._shape.startup.observe(event)
        ledger.event(event, at, self._geometry if starting else self._known_geometry(at), self._build)
        if starting:
            self._learn(event, at)
        elif type(event) is ev.Verbosity:
            self._verbosity = event.level
        if ledger.incidents_seen != self._seen or len(ledger.news.requests) >= _MOST_REQUESTS_WAITING:
            self._collect()

    def unit_event(self, event: UnitEvent, at: float) -> None:
        """Take what systemd or journald says of the unit."""
        self.saw(at)
        self.told = self.told or isinstance(event, UnitExited | UnitFailed | UnitOutOfMemory | UnitRestartScheduled)
        self._ledger.unit(event, at, self._known_geometry(at), self._build)
        self._collect()

    def asked(self, address: str, at: float, *, failed: bool) -> None:
        """A request came from there, and has ended."""
        self.saw(at)
        if (address, failed) in self._clients or len(self._clients) < _MOST_CLIENTS:
            self._clients[address, failed] += 1

    def preface(self, event: ev.Event) -> None:
        """A line from before the time that is looked at: it tells how the pool is cut, and is not counted."""
        if self._shape.startup.observe(event):
            self._learn(event, None)
        elif type(event) is ev.Verbosity:
            self._verbosity = event.level

    def saw(self, at: float) -> None:
        """A line of the server, needed or not, was read."""
        if self._first is None:
            self._first = at
        self._last = at if self._last is None else max(self._last, at)

    def conclude(self) -> None:
        """No more lines will come."""
        self._ledger.conclude(self._known_geometry(self._last), self._build)
        self._collect()

    def story(self) -> ServerStory:
        """What was told so far."""
        ledger, startup = self._ledger, self._shape.startup
        return ServerStory(
            name=self.name,
            unit=self.unit,
            build=self._build,
            model=self._model,
            geometry=self._last_whole_geometry(),
            counters=ledger.counters.snapshot(of_unit=self.unit is not None),
            starts=self._starts,
            first=self._first,
            last=self._last,
            incidents=tuple(self._incidents),
            totals=IncidentTotals(
                self._adding_up[True],
                self._adding_up[False],
                self._alone,
                dict(self._biggest),
                self._seen - self._before_shape,
            ),
            requests_ended=ledger.requests_seen,
            request_sizes=dict(self._sizes),
            refused_sizes=dict(self._refused),
            clients=dict(self._clients),
            verbosity=self._verbosity,
            shape_changed=self._shape_changed,
            context_train=startup.training_context,
            kv_bytes_per_token=startup.bytes_per_token(),
            kv_cache_bytes=startup.cache_bytes,
            cache_type_k=startup.cache_type_k,
            cache_type_v=startup.cache_type_v,
        )

    def _learn(self, event: ev.Event, at: float | None) -> None:
        """What a start-up line tells of the process; what it tells of the pool is worked out when it is needed."""
        self._learnt = True
        match event:
            case ev.ProcessStarting(build):
                # Its first line comes two or three times on some builds; only a model's loading ends a start.
                if not self._starting:
                    self._starts += at is not None
                    self._verbosity = None
                self._starting = True
                self._build = build or self._build
            case ev.ModelLoading(model):
                self._starting = False
                self._model = model or self._model
            case ev.PoolInitialized() | ev.SlotsInitializing():
                self._starting = False

    def _known_geometry(self, at: float | None) -> Geometry:
        """How the pool is cut, as far as the start-up lines have told."""
        if self._learnt:
            self._learnt = False
            self._geometry = geometry = self._shape.geometry()
            if geometry.promised is not None and geometry.capacity is not None:
                was, self._shape_known = self._shape_known, geometry
                if was is not None and was != geometry:
                    self._shape_changed, self._before_shape = at, self._seen
        return self._geometry

    def _last_whole_geometry(self) -> Geometry:
        """How the pool is cut now; where the log ends within a start, how it was cut before that."""
        geometry = self._known_geometry(self._last)
        whole = geometry.promised is not None and geometry.capacity is not None
        return geometry if whole or self._shape_known is None else self._shape_known

    def _collect(self) -> None:
        """Take out of the books what they do not keep."""
        news = self._ledger.take_news()
        for _, _, tokens in news.requests:
            if tokens:
                self._sizes[tokens] += 1
        for _, incident in news.incidents:
            self._incidents.append(incident)
            if incident.adds_up is not None:
                self._adding_up[incident.adds_up] += 1
            if incident.biggest_slot is not None and len(self._biggest) < MOST_SLOTS:
                self._biggest[incident.biggest_slot] += 1
            if incident.cause == "slot" and incident.request_tokens is not None:
                self._refused[incident.request_tokens] += 1
            self._alone += filled_alone(incident)
        self._seen = self._ledger.incidents_seen


class _NoDemand(LogDemand):
    """Where the log's lines are not all read, what running requests needed is not known."""

    def observe(self, event: ev.Event, at: float, geometry: Geometry) -> None:
        """Say nothing of it."""


def filled_alone(incident: Incident) -> bool:
    """One request filled the shared pool by itself: not the sharing killed it, but its own size."""
    if incident.cause != "pool" or incident.requests_failed != 1 or len(incident.slots) != 1:
        return False
    return incident.excess_tokens is not None and incident.excess_tokens >= 0
