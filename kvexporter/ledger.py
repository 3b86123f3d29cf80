"""What one server's log alone adds up to: counts, incidents, request sizes.

Only lines and their times go in, never polls, processes or the clock of the moment: the same lines give the same
numbers, whatever else happens meanwhile and however often the exporter is started anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvexporter.counters import LogCounters
from kvexporter.facts import UnitEvent, UnitExited, UnitFailed, UnitStopped
from kvexporter.incidents import CascadeTracker, Outcome, pool_incident, slot_incident
from kvexporter.llama import events as ev
from kvexporter.requests import RequestSizes
from kvexporter.snapshot import Geometry, Incident

KEPT_INCIDENTS = 100
_MAX_SLOTS = 1024


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
    failed_slots: tuple[int, ...] = ()
    """Slots whose cache the last event's incident has emptied."""

    @property
    def cascade_open(self) -> bool:
        """A failing batch has been read whose outcome is not known yet."""
        return self.tracker.open

    def event(self, event: ev.Event, at: float, geometry: Geometry, build: str | None) -> None:
        """Take one event of the log. `geometry` is what is known of the pool now."""
        self.failed_slots = ()
        self.counters.observe(event)
        self._outcome(self.tracker.observe(event, at, self._tasks), geometry, build)
        match event:
            case ev.TaskLaunched(slot, task, _):
                if len(self.running) < _MAX_SLOTS or slot in self.running:
                    self.running[slot] = task
            case ev.PromptStarted(slot, task, _, prompt_tokens):
                if len(self.prompts) < _MAX_SLOTS or slot in self.prompts:
                    self.prompts[slot] = (task, prompt_tokens)
            case ev.Released(slot, task, _, _):
                self.running.pop(slot, None)
                prompt = self.prompts.pop(slot, None)
                self.requests.released(event, prompt[1] if prompt is not None and prompt[0] == task else None)
            case ev.Timing() | ev.TimingHeader():
                self.requests.timing(event)
            case ev.RequestFailed(task, "slot"):
                self._add(slot_incident(event, at, self._slot_of(task), geometry, build))
            case ev.AllSlotsIdle() | ev.Sleeping() | ev.ModelLoading():
                self.running.clear()
                self.prompts.clear()
            case ev.ProcessStarting():
                self.running.clear()
                self.prompts.clear()
                self.requests.restart()
            case _:
                pass

    def unit(self, event: UnitEvent, at: float, geometry: Geometry, build: str | None) -> None:
        """Take what systemd or journald says of the unit."""
        self.counters.unit(event)
        if isinstance(event, UnitExited | UnitFailed | UnitStopped):
            self.event(ev.Stopping(), at, geometry, build)

    def tick(self, at: float, geometry: Geometry, build: str | None) -> None:
        """The log has been silent up to `at`."""
        self.failed_slots = ()
        self._outcome(self.tracker.tick(at), geometry, build)

    def conclude(self, geometry: Geometry, build: str | None) -> None:
        """No more lines will come: an open cascade has the outcome that its lines tell."""
        self._outcome(self.tracker.conclude(), geometry, build)

    def _outcome(self, outcome: Outcome | None, geometry: Geometry, build: str | None) -> None:
        if outcome is None:
            return
        kind, cascade = outcome
        if kind == "recovery":
            self.counters.recoveries += 1
            return
        self._add(pool_incident(cascade, geometry, build))
        if cascade.cleared:
            self.failed_slots = tuple(slot for slot in cascade.releases if slot not in self.running)

    def _add(self, incident: Incident) -> None:
        self.counters.incident(incident)
        self.incidents.append(incident)
        del self.incidents[:-KEPT_INCIDENTS]
        if incident.cause == "pool":
            self.last_pool_incident = incident

    def _tasks(self) -> dict[int, tuple[int | None, int | None]]:
        return {slot: (task, None) for slot, task in self.running.items()}

    def _slot_of(self, task: int | None) -> int | None:
        return next((slot for slot, running in self.running.items() if running == task), None)
