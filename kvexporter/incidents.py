"""From the lines around a context error to one incident.

A cascade is opened by the first failing batch. An error (or its echo, or the failed requests' own lines) makes it an
incident; the lines of going on without one make it a recovery. Builds print the releases before or after the error,
some print the error only as an echo at the end, and people paste excerpts, so nothing here depends on one order or on
all lines being there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kvexporter.llama import events as ev
from kvexporter.llama.slots import MOST_SLOTS
from kvexporter.pool_geometry import Geometry
from kvexporter.snapshot import Cause, Incident, IncidentSlot

Running = Mapping[int, tuple[int | None, int | None]]
"""Slot → (task, tokens) of the slots that run a task."""

SETTLE_SECONDS = 2.0
"""An error's releases follow within milliseconds; a longer silence in the log ends the incident."""

PATIENCE_SECONDS = 60.0
"""Between two failing batches of one cascade a smaller one is computed, which can take long on a slow machine."""

NO_OFFSET = -1
"""The line named none."""

_LIFE = (
    ev.TaskLaunched,
    ev.PromptStarted,
    ev.PromptReused,
    ev.PromptDone,
    ev.AllSlotsIdle,
    ev.Sleeping,
)
"""Events that only a server that has left the failing batch behind can print."""

_STEP = (ev.GenerationTick, ev.Timing, ev.TimingHeader, ev.PromptProgress)
"""Events that a part of the batch can print that found room, while the rest of it still fails."""

_END = (ev.ProcessStarting, ev.ModelLoading, ev.Stopping)


@dataclass(slots=True)
class Cascade:
    """What has been read of one cascade so far."""

    started: float
    running: dict[int, tuple[int | None, int | None]]
    last: float
    confirmed: bool = False
    exceeded: bool = False
    """The error itself was read: a second one is another incident's."""
    cleared: bool = False
    """The build drops the failed slots' caches with the error."""
    releases: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    errors: set[int] = field(default_factory=set)
    unknown_errors: int = 0
    stepped: bool = False
    """A part of the batch was computed since the last failure: the next failure's offset tells whether it went on."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Offset → the largest batch that failed there."""
    pending: int | None = None
    """The largest batch that failed since the last line with an offset."""
    offset: int = NO_OFFSET
    prompts: dict[int, int] = field(default_factory=dict)
    """Task → size of its whole prompt, of those running at the start, where it was logged."""
    demand_above_since: float | None = None
    """Since when the requests running at the start were known by the log to need more than the pool."""
    size: int | None = None
    """The batch that failed last."""
    batch: int | None = None
    """The size that was to be tried next."""

    def unplaced(self, size: int | None) -> None:
        if size is not None:
            self.pending = max(self.pending or 0, size)
            self.size = size

    def at_offset(self, offset: int | None) -> None:
        """The sizes read since the last such line failed at `offset`."""
        self.offset = offset = NO_OFFSET if offset is None else offset
        if self.pending is not None:
            if len(self.sizes) >= MOST_SLOTS:
                self.sizes.clear()
            self.sizes[offset] = max(self.sizes.get(offset, 0), self.pending)
            self.pending = None

    def expects(self, size: int | None) -> bool:
        """A failing batch of this size is the one that was to be tried next, so nothing was computed in between."""
        if size is None or self.size is None or self.batch is None:
            return True
        return size == min(self.size, self.batch)

    def falls_back_to(self, offset: int | None, batch: int) -> bool:
        """A larger batch is tried at the same place: the batch before has found room, and this is a later one."""
        return offset is not None and offset <= self.offset and self.batch is not None and batch > self.batch

    def goes_on_at(self, offset: int | None) -> bool:
        """A failure at `offset` is of the same batch: parts of it were placed since the last one."""
        return offset is not None and offset > self.offset != NO_OFFSET

    def take(self, later: Cascade) -> None:
        """The failures of `later` are of this cascade's batch."""
        if later.pending is not None:
            self.unplaced(later.pending)
        self.batch = None
        self.last = max(self.last, later.last)
        self.releases.clear()
        self.stepped = False

    @property
    def unplaced_batch(self) -> int | None:
        """The batch that found no room: the largest that failed at the place where the cascade ended."""
        if self.pending is not None:
            return max(self.sizes.get(self.offset, 0), self.pending)
        return self.sizes.get(self.offset)


Outcome = tuple[Literal["incident", "recovery"], Cascade]


@dataclass(slots=True)
class CascadeTracker:
    """Follows one server's log through its cascades."""

    cascade: Cascade | None = None
    later: Cascade | None = None
    """Failures after a step of the open cascade, of the same batch or of another: its offset will tell."""
    releases: dict[int, tuple[int | None, int, float]] = field(default_factory=dict)
    """Slot → (task, tokens, time) of releases with no sign of life since: what an error without a cascade is about."""
    ended: float | None = None
    """When the last incident's last line was read: an echo right after it belongs to it."""
    closed: list[Outcome] = field(default_factory=list)
    """Not taken yet. Several, because one line can end a cascade by its time and another one by what it says."""

    @property
    def open(self) -> bool:
        """A cascade is running and has not been told an outcome yet."""
        return self.cascade is not None

    def tick(self, at: float) -> None:
        """Time has come to `at` with no further line: end what silence ends."""
        cascade = self.cascade
        if cascade is None:
            return
        last = cascade.last if self.later is None else self.later.last
        # Far back in time is the clock having been set, and not known how long ago.
        if at - last > (SETTLE_SECONDS if cascade.confirmed else PATIENCE_SECONDS) or last - at > PATIENCE_SECONDS:
            self._close()

    def conclude(self) -> None:
        """The log has ended: the outcome of an open cascade is what was told of it so far."""
        self._close()

    def observe(self, event: ev.Event, at: float, running: Callable[[], Running]) -> None:
        """Take one event; the outcomes of the cascades that it ended are in `closed`."""
        if self.cascade is not None:
            self.tick(at)
        follow = _FOLLOWED.get(type(event))
        if follow is not None:
            follow(self, event, at, running)

    def take_closed(self) -> list[Outcome]:
        """The outcomes since the last call, oldest first."""
        closed, self.closed = self.closed, []
        return closed

    def _unplaced(self, event: ev.BatchUnplaced, at: float, running: Callable[[], Running]) -> None:
        cascade = self.cascade
        if cascade is not None and not cascade.confirmed:
            # A retry fails at once, and with the size that was announced: else something was computed since.
            cascade.stepped = cascade.stepped or at - cascade.last > SETTLE_SECONDS or not cascade.expects(event.size)
        self._failing(at, running).unplaced(event.size)

    def _retried(self, event: ev.BatchRetried, at: float, running: Callable[[], Running]) -> None:
        self._settle_next(event.offset)
        cascade = self.cascade
        if cascade is not None and not cascade.confirmed and cascade.falls_back_to(event.offset, event.batch):
            later = Cascade(cascade.last, dict(running()), at, pending=cascade.pending, size=cascade.size)
            cascade.pending = None
            self._close()
            self.cascade = later
        failing = self._failing(at, running, event.offset)
        failing.at_offset(event.offset)
        failing.batch = event.batch

    def _exceeded(self, event: ev.ContextExceeded, at: float, running: Callable[[], Running]) -> None:
        self._settle_next(event.offset)
        if self.cascade is not None and self.cascade.exceeded:
            self._close()
        cascade = self._confirm(at, running)
        cascade.exceeded = True
        cascade.at_offset(event.offset)
        cascade.cleared = cascade.cleared or event.cleared

    def _failed(self, event: ev.RequestFailed, at: float, running: Callable[[], Running]) -> None:
        if event.kind == "other" and self.cascade is not None and not self.cascade.confirmed:
            self.cascade = self.later = None  # it ended in another error: neither an incident nor a recovery
        if event.kind != "pool" or (self.cascade is None and self._just_ended(at)):
            return  # of no pool, or a late line of the incident that has just been closed
        self._settle_next(None)
        cascade = self._confirm(at, running)
        if event.task is None:
            cascade.unknown_errors += 1
        elif len(cascade.errors) < MOST_SLOTS:
            cascade.errors.add(event.task)

    def _echoed(self, event: ev.DecodeFailed, at: float, running: Callable[[], Running]) -> None:
        if self.cascade is None and self._just_ended(at):
            return
        self._settle_next(None)
        self._confirm(at, running).cleared = True  # only builds that empty the failed slots' caches print it
        self._close()

    def _just_ended(self, at: float) -> bool:
        """An incident has ended and nothing was read since: a machine can stall for seconds between its lines."""
        return self.ended is not None and abs(at - self.ended) <= PATIENCE_SECONDS

    def _released(self, event: ev.Released, at: float, running: Callable[[], Running]) -> None:
        """A request ended: in the error's wake, or as it should while a part of the batch still fails."""
        release = (event.task, event.tokens)
        if self.cascade is not None:
            if len(self.cascade.releases) < MOST_SLOTS:
                self.cascade.releases.setdefault(event.slot, release)
            if self.cascade.confirmed:
                self.cascade.last = max(self.cascade.last, at)
        if len(self.releases) < MOST_SLOTS or event.slot in self.releases:
            self.releases[event.slot] = (*release, at)

    def _ended(self, event: ev.Event, at: float, running: Callable[[], Running]) -> None:
        """A server that dies in a cascade has neither recovered nor said that it failed."""
        if self.cascade is not None and self.cascade.confirmed:
            self._close()
        self.cascade = self.later = self.ended = None
        self.releases.clear()

    def _lives(self, event: ev.Event, at: float, running: Callable[[], Running]) -> None:
        self._close()
        self.releases.clear()
        self.ended = None

    def _stepped(self, event: ev.Event, at: float, running: Callable[[], Running]) -> None:
        if self.cascade is not None and self.cascade.confirmed:
            self._close()
        elif self.cascade is not None:
            self.cascade.stepped = True
        self.releases.clear()
        self.ended = None

    def _failing(self, at: float, running: Callable[[], Running], offset: int | None = None) -> Cascade:
        """A batch found no room: the cascade that this belongs to; one that it shows to be over is closed."""
        self.releases.clear()
        cascade = self.cascade
        if cascade is not None and cascade.confirmed:
            self._close()
        elif cascade is not None and (cascade.stepped or cascade.releases):
            if self.later is None:
                self.later = Cascade(at, dict(running()), at)
            if offset is None:
                return self.later
            self._settle_next(offset)
        if self.cascade is None:
            self.cascade = Cascade(at, dict(running()), at)
        self.cascade.last = max(self.cascade.last, at)
        return self.cascade

    def _settle_next(self, offset: int | None) -> None:
        """Failures after a step now have their offset: part of the open cascade, or that one has recovered."""
        cascade, later = self.cascade, self.later
        if cascade is None or later is None:
            return
        self.later = None
        if cascade.goes_on_at(offset):
            cascade.take(later)
            return
        self._close()
        self.cascade = later

    def _confirm(self, at: float, running: Callable[[], Running]) -> Cascade:
        if self.cascade is None:
            recent = {
                slot: (task, tokens)
                for slot, (task, tokens, when) in self.releases.items()
                if abs(at - when) <= SETTLE_SECONDS
            }
            self.cascade = Cascade(at, dict(running()), at, releases=recent)
        self.cascade.confirmed = True
        self.cascade.last = max(self.cascade.last, at)
        return self.cascade

    def _close(self) -> None:
        cascade, self.cascade, self.later = self.cascade, None, None
        if cascade is None:
            return
        self.releases.clear()
        if cascade.confirmed:
            self.ended = cascade.last
        self.closed.append(("incident" if cascade.confirmed else "recovery", cascade))


_FOLLOWED: dict[type, Callable[[CascadeTracker, Any, float, Callable[[], Running]], None]] = {
    ev.BatchUnplaced: CascadeTracker._unplaced,
    ev.BatchRetried: CascadeTracker._retried,
    ev.ContextExceeded: CascadeTracker._exceeded,
    ev.RequestFailed: CascadeTracker._failed,
    ev.DecodeFailed: CascadeTracker._echoed,
    ev.Released: CascadeTracker._released,
    **dict.fromkeys(_END, CascadeTracker._ended),
    **dict.fromkeys(_LIFE, CascadeTracker._lives),
    **dict.fromkeys(_STEP, CascadeTracker._stepped),
}
"""By kind, not by a chain of tests: a backlog has millions of events."""


def pool_incident(cascade: Cascade, geometry: Geometry, build: str | None, parents: Mapping[int, int]) -> Incident:
    """The incident that a confirmed cascade was.

    The failed requests are the slots released around the error; where releases are not logged, the failed requests' own
    lines, but for those of tasks known not to run (some builds print one for every slot, idle ones too). A request with
    several answers is one; `parents` tells which tasks are further answers of which.
    """
    tasks = {task: slot for slot, (task, _) in cascade.running.items() if task is not None}
    errors = cascade.errors & tasks.keys() if tasks else cascade.errors
    held: dict[int, tuple[int | None, int | None]] = dict(cascade.releases)
    for task in errors:
        if task in tasks:
            held.setdefault(tasks[task], cascade.running[tasks[task]])
    if not held and not errors:
        held = dict(cascade.running)
    capacity = geometry.capacity
    total = _held_together(held, parents, cascade.prompts)
    excess = total - capacity if total is not None and capacity is not None else None
    unplaced = cascade.unplaced_batch
    cause: Cause = "slot" if geometry.shared is False else "pool"
    above_since = cascade.demand_above_since if cause == "pool" else None
    sized = {slot: tokens for slot, (_, tokens) in held.items() if tokens is not None}
    return Incident(
        cause=cause,
        started=cascade.started,
        ended=cascade.last,
        slots=tuple(
            IncidentSlot(slot, task, tokens, tokens / capacity if tokens is not None and capacity else None)
            for slot, (task, tokens) in sorted(held.items())
        ),
        requests_failed=max(_requests(held, parents), len({parents.get(task, task) for task in errors}), 1),
        capacity=capacity,
        sum_tokens=total,
        excess_tokens=excess,
        unplaced_batch_tokens=unplaced,
        adds_up=excess == unplaced if excess is not None and unplaced is not None else None,
        biggest_slot=max(sized, key=lambda slot: sized[slot]) if sized else None,
        build=build,
        demand_above_seconds=max(0.0, cascade.started - above_since) if above_since is not None else None,
    )


def _requests(held: Running, parents: Mapping[int, int]) -> int:
    """Requests that these slots worked on, those with several answers counted once."""
    known = {parents.get(task, task) for task, _ in held.values() if task is not None}
    return len(known) + sum(task is None for task, _ in held.values())


def _held_together(held: Running, parents: Mapping[int, int], prompts: Mapping[int, int]) -> int | None:
    """Cells that the slots held, prompts shared by several answers counted once; None where a size is unknown."""
    total = 0
    families: set[int] = set()
    for task, tokens in held.values():
        if tokens is None:
            return None
        total += tokens
        family = None if task is None else parents.get(task, task)
        if family is None or family not in families:
            families.update(() if family is None else (family,))
        elif family in prompts:
            total -= prompts[family]
        else:
            return None
    return total if held else None


def slot_incident(
    event: ev.RequestFailed, at: float, slot: int | None, geometry: Geometry, build: str | None
) -> Incident:
    """The incident of one request that is larger than its own slot."""
    context = event.slot_context if event.slot_context is not None else geometry.slot_context
    size = event.prompt_tokens
    share = size / geometry.capacity if size is not None and geometry.capacity else None
    return Incident(
        cause="slot",
        started=at,
        ended=at,
        slots=(IncidentSlot(slot, event.task, size, share),) if slot is not None else (),
        requests_failed=1,
        capacity=geometry.capacity,
        sum_tokens=size,
        excess_tokens=size - context if size is not None and context is not None else None,
        unplaced_batch_tokens=None,
        adds_up=None,
        biggest_slot=slot,
        request_tokens=size,
        build=build,
    )
