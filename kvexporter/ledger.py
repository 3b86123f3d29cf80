"""What one server's log alone adds up to: counts, incidents, request sizes.

Only lines and their times go in, never polls, processes or the clock of the moment: the same lines give the same
numbers, whatever else happens meanwhile and however often the exporter is started anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvexporter.cascade_tracker import FOLLOWED, CascadeTracker
from kvexporter.counters import LogCounters
from kvexporter.facts import UnitEvent, UnitExited, UnitFailed, UnitStopped
from kvexporter.incidents import pool_incident, slot_incident
from kvexporter.llama import events as ev
from kvexporter.llama.slots import MOST_SLOTS
from kvexporter.log_demand import TOLD_BY, LogDemand
from kvexporter.pool_geometry import Geometry
from kvexporter.requests import RequestSizes
from kvexporter.snapshot import Incident

KEPT_INCIDENTS = 100
KEPT_INCIDENT_SLOTS = 4096
"""Slots of all kept incidents together, so that memory is bounded for servers with a thousand of them too."""
KEPT_NEWS = 10_000


@dataclass(slots=True)
class News:
    """Incidents and request sizes that nobody has stored yet, with their numbers, counting up from 1."""

    incidents: list[tuple[int, Incident]] = field(default_factory=list)
    requests: list[tuple[int, float, int]] = field(default_factory=list)
    """(number, end, tokens)."""


@dataclass(slots=True)
class Doubtful:
    """A cancellation of which it is not known yet whether it was the client's."""

    task: int | None


@dataclass(slots=True)
class Ledger:
    """The books of one server's log."""

    counters: LogCounters = field(default_factory=LogCounters)
    requests: RequestSizes = field(default_factory=RequestSizes)
    incidents: list[Incident] = field(default_factory=list)
    """The latest ones, oldest first."""
    last_pool_incident: Incident | None = None
    tracker: CascadeTracker = field(default_factory=CascadeTracker)
    running: dict[int, int | None] = field(default_factory=dict)
    """Slot → task, as launched and not yet released."""
    prompts: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    """Slot → (task, size of its whole prompt)."""
    parents: dict[int, int] = field(default_factory=dict)
    """Task → the task whose prompt it shares: a further answer to the same request. The latest ones, bounded."""
    family: int | None = None
    """The task launched last that is no such further answer."""
    doubtful: list[Doubtful] = field(default_factory=list)
    """Cancellations in the middle of an incident, which may be of the failing requests."""
    failed_slots: tuple[int, ...] = ()
    """Slots whose cache the last event's incident has emptied."""
    incidents_seen: int = 0
    requests_seen: int = 0
    news: News = field(default_factory=News)
    """What has come since it was taken last."""
    demand: LogDemand = field(default_factory=LogDemand)
    pressure_at: float | None = None
    """When a batch last found no room."""

    @property
    def cascade_open(self) -> bool:
        """A failing batch has been read whose outcome is not known yet."""
        return self.tracker.open

    @property
    def cascade_since(self) -> float | None:
        """When the failing batch was read whose outcome is not known yet; None without one."""
        return self.tracker.cascade.started if self.tracker.cascade is not None else None

    def event(self, event: ev.Event, at: float, geometry: Geometry, build: str | None) -> None:
        """Take one event of the log. `geometry` is what is known of the pool now."""
        kind, tracker = type(event), self.tracker
        self.failed_slots = ()
        if type(event) is not ev.TaskCancelled or self._gave_up(event):
            self.counters.observe(event)
        opened = tracker.cascade
        if opened is not None or kind in FOLLOWED:
            tracker.observe(event, at, self._tasks)
            if tracker.cascade is not None and tracker.cascade is not opened:
                tracker.cascade.prompts = {task: size for task, size in self.prompts.values() if task is not None}
                tracker.cascade.demand_above_since = self.demand.above_since
            if tracker.closed:
                self._outcomes(geometry, build)
        if kind in TOLD_BY:
            self.demand.observe(event, at, geometry)
        book = _BOOKED.get(kind)
        if book is not None:
            book(self, event, at)
        elif type(event) is ev.RequestFailed and event.kind == "slot":
            self._add(slot_incident(event, at, self._slot_of(event.task), geometry, build))

    def unit(self, event: UnitEvent, at: float, geometry: Geometry, build: str | None) -> None:
        """Take what systemd or journald says of the unit."""
        self.counters.unit(event)
        if isinstance(event, UnitExited | UnitFailed | UnitStopped):
            self.event(ev.Stopping(), at, geometry, build)

    def tick(self, at: float, geometry: Geometry, build: str | None) -> None:
        """The log has been silent up to `at`."""
        self.failed_slots = ()
        self.tracker.tick(at)
        self._outcomes(geometry, build)

    def take_news(self) -> News:
        """What is to be stored; the next call gives only what has come since."""
        news, self.news = self.news, News()
        return news

    def open_incident(self, geometry: Geometry, build: str | None) -> Incident | None:
        """The incident whose error was read and whose last lines may still come, as far as it is known; else None."""
        cascade = self.tracker.cascade
        if cascade is None or not cascade.confirmed:
            return None
        return pool_incident(cascade, geometry, build, self.parents)

    def conclude(self, geometry: Geometry, build: str | None) -> None:
        """No more lines will come: an open cascade has the outcome that its lines tell."""
        self.tracker.conclude()
        self._outcomes(geometry, build)

    def _gave_up(self, event: ev.TaskCancelled) -> bool:
        """A cancelled task is a request whose client gave up: no further answer of one, nor one that is failing."""
        if event.task in self.parents:
            return False
        if self.tracker.cascade is None or not self.tracker.cascade.confirmed:
            return True
        if len(self.doubtful) < MOST_SLOTS:
            self.doubtful.append(Doubtful(event.task))  # its own error line may come after this one
        return False

    def _launched(self, event: ev.TaskLaunched, at: float) -> None:
        if not event.child:
            self.family = event.task
        elif event.task is not None and self.family is not None:
            if len(self.parents) >= MOST_SLOTS:
                self.parents.clear()
            self.parents[event.task] = self.family
        if len(self.running) < MOST_SLOTS or event.slot in self.running:
            self.running[event.slot] = event.task

    def _prompted(self, event: ev.PromptStarted, at: float) -> None:
        if len(self.prompts) < MOST_SLOTS or event.slot in self.prompts:
            self.prompts[event.slot] = (event.task, event.prompt_tokens)

    def _released(self, event: ev.Released, at: float) -> None:
        self.running.pop(event.slot, None)
        prompt = self.prompts.pop(event.slot, None)
        self.requests_seen += 1
        self.news.requests.append((self.requests_seen, at, event.tokens))
        if len(self.news.requests) >= 2 * KEPT_NEWS:
            del self.news.requests[:KEPT_NEWS]
        self.requests.released(event, prompt[1] if prompt is not None and prompt[0] == event.task else None)

    def _no_room(self, event: ev.BatchUnplaced | ev.BatchRetried, at: float) -> None:
        self.pressure_at = at

    def _timed(self, event: ev.Timing | ev.TimingHeader, at: float) -> None:
        self.requests.timing(event)

    def _nothing_runs(self, event: ev.Event, at: float) -> None:
        self.running.clear()
        self.prompts.clear()

    def _new_process(self, event: ev.ProcessStarting, at: float) -> None:
        self._nothing_runs(event, at)
        self.requests.restart()
        self.parents.clear()

    def _outcomes(self, geometry: Geometry, build: str | None) -> None:
        """Book what became of the cascades that have ended."""
        for kind, cascade in self.tracker.take_closed():
            if kind == "recovery":
                self.counters.recoveries += 1
                continue
            self._add(pool_incident(cascade, geometry, build, self.parents))
            doubtful, self.doubtful = self.doubtful, []
            failed = cascade.errors | {task for task, _ in cascade.releases.values()}
            for cancelled in doubtful:
                if cancelled.task not in failed:
                    self.counters.observe(ev.TaskCancelled(cancelled.task))
            if cascade.cleared:
                self.failed_slots += tuple(slot for slot in cascade.releases if slot not in self.running)

    def _add(self, incident: Incident) -> None:
        self.counters.incident(incident)
        self.incidents_seen += 1
        self.news.incidents.append((self.incidents_seen, incident))
        del self.news.incidents[: _too_many([news for _, news in self.news.incidents])]
        self.incidents.append(incident)
        del self.incidents[: _too_many(self.incidents)]
        if incident.cause == "pool":
            self.last_pool_incident = incident

    def _tasks(self) -> dict[int, tuple[int | None, int | None]]:
        return {slot: (task, None) for slot, task in self.running.items()}

    def _slot_of(self, task: int | None) -> int | None:
        return next((slot for slot, running in self.running.items() if running == task), None)


def _too_many(incidents: list[Incident]) -> int:
    """How many of the oldest are to go; the latest one always stays."""
    slots = 0
    for kept, incident in enumerate(reversed(incidents)):
        slots += len(incident.slots)
        if kept and (kept >= KEPT_INCIDENTS or slots > KEPT_INCIDENT_SLOTS):
            return len(incidents) - kept
    return 0


_BOOKED: dict[type, Callable[[Ledger, Any, float], None]] = {
    ev.TaskLaunched: Ledger._launched,
    ev.PromptStarted: Ledger._prompted,
    ev.Released: Ledger._released,
    ev.BatchUnplaced: Ledger._no_room,
    ev.BatchRetried: Ledger._no_room,
    ev.Timing: Ledger._timed,
    ev.TimingHeader: Ledger._timed,
    ev.AllSlotsIdle: Ledger._nothing_runs,
    ev.Sleeping: Ledger._nothing_runs,
    ev.ModelLoading: Ledger._nothing_runs,
    ev.ProcessStarting: Ledger._new_process,
}
"""By kind, not by a chain of tests: a backlog has millions of events."""
