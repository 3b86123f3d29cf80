"""From the lines around a context error to one incident.

A cascade is opened by the first failing batch. An error (or its echo, or the failed requests' own lines) makes it an
incident; the lines of going on without one make it a recovery. Builds print the releases before or after the error,
some print the error only as an echo at the end, and people paste excerpts, so nothing here depends on one order or on
all lines being there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kvexporter.llama import events as ev
from kvexporter.snapshot import Geometry, Incident, IncidentSlot

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

    def unplaced(self, size: int | None) -> None:
        if size is not None:
            self.pending = max(self.pending or 0, size)

    def at_offset(self, offset: int | None) -> None:
        """The sizes read since the last such line failed at `offset`."""
        self.offset = offset = NO_OFFSET if offset is None else offset
        if self.pending is not None:
            self.sizes[offset] = max(self.sizes.get(offset, 0), self.pending)
            self.pending = None

    def goes_on_at(self, offset: int | None) -> bool:
        """A failure at `offset` is of the same batch: parts of it were placed since the last one."""
        return offset is not None and offset > self.offset != NO_OFFSET

    def take(self, later: Cascade) -> None:
        """The failures of `later` are of this cascade's batch."""
        if later.pending is not None:
            self.unplaced(later.pending)
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
    releases: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    """Releases with no sign of life since: what an echo without anything before it is about."""
    ended: float | None = None
    """When the last incident's last line was read: an echo right after it belongs to it."""

    @property
    def open(self) -> bool:
        """A cascade is running and has not been told an outcome yet."""
        return self.cascade is not None

    def tick(self, at: float) -> Outcome | None:
        """Time has come to `at` with no further line: end what silence ends."""
        cascade = self.cascade
        if cascade is None:
            return None
        last = cascade.last if self.later is None else self.later.last
        if at - last <= (SETTLE_SECONDS if cascade.confirmed else PATIENCE_SECONDS):
            return None
        return self._close()

    def conclude(self) -> Outcome | None:
        """The log has ended: the outcome of an open cascade as far as it was told."""
        return self._close()

    def observe(self, event: ev.Event, at: float, running: Callable[[], Running]) -> Outcome | None:
        """Take one event; the outcome of a cascade that it ended, if it did."""
        outcome = self.tick(at)
        match event:
            case ev.BatchUnplaced(size):
                failing, closed = self._failing(at, running)
                failing.unplaced(size)
                outcome = closed or outcome
            case ev.BatchRetried(offset, _):
                closed = self._settle_next(offset)
                failing, earlier = self._failing(at, running, offset)
                failing.at_offset(offset)
                outcome = closed or earlier or outcome
            case ev.ContextExceeded(offset, cleared):
                outcome = self._settle_next(offset) or outcome
                cascade = self._confirm(at, running)
                cascade.at_offset(offset)
                cascade.cleared = cascade.cleared or cleared
            case ev.RequestFailed(task, "pool"):
                outcome = self._settle_next(None) or outcome
                cascade = self._confirm(at, running)
                if task is None:
                    cascade.unknown_errors += 1
                else:
                    cascade.errors.add(task)
            case ev.DecodeFailed():
                if self.cascade is not None or self.ended is None or at - self.ended > SETTLE_SECONDS:
                    outcome = self._settle_next(None) or outcome
                    self._confirm(at, running)
                    outcome = self._close()
            case ev.Released(slot, task, tokens):
                self._released(slot, task, tokens, at)
            case _ if isinstance(event, _END):
                # A server that dies in a cascade has neither recovered nor said that it failed.
                if self.cascade is not None and self.cascade.confirmed:
                    outcome = self._close()
                self.cascade = self.later = self.ended = None
                self.releases.clear()
            case _ if isinstance(event, _LIFE):
                if self.cascade is not None:
                    outcome = self._close()
                self.releases.clear()
                self.ended = None
            case _ if isinstance(event, _STEP):
                if self.cascade is not None and self.cascade.confirmed:
                    outcome = self._close()
                elif self.cascade is not None:
                    self.cascade.stepped = True
                self.releases.clear()
                self.ended = None
            case _:
                pass
        return outcome

    def _failing(
        self, at: float, running: Callable[[], Running], offset: int | None = None
    ) -> tuple[Cascade, Outcome | None]:
        """A batch found no room: the cascade that this belongs to, and the outcome of one that it ended."""
        self.releases.clear()
        outcome = None
        cascade = self.cascade
        if cascade is not None and cascade.confirmed:
            outcome = self._close()
        elif cascade is not None and (cascade.stepped or cascade.releases):
            if self.later is None:
                self.later = Cascade(at, dict(running()), at)
            if offset is not None:
                outcome = self._settle_next(offset)
            else:
                return self.later, None
        if self.cascade is None:
            self.cascade = Cascade(at, dict(running()), at)
        self.cascade.last = max(self.cascade.last, at)
        return self.cascade, outcome

    def _settle_next(self, offset: int | None) -> Outcome | None:
        """Failures after a step now have their offset: part of the open cascade, or that one has recovered."""
        cascade, later = self.cascade, self.later
        if cascade is None or later is None:
            return None
        self.later = None
        if cascade.goes_on_at(offset):
            cascade.take(later)
            return None
        outcome = self._close()
        self.cascade = later
        return outcome

    def _released(self, slot: int, task: int | None, tokens: int, at: float) -> None:
        """A request ended: in the error's wake, or as it should while a part of the batch still fails."""
        if self.cascade is not None:
            self.cascade.releases.setdefault(slot, (task, tokens))
            if self.cascade.confirmed:
                self.cascade.last = max(self.cascade.last, at)
        self.releases[slot] = (task, tokens)

    def _confirm(self, at: float, running: Callable[[], Running]) -> Cascade:
        if self.cascade is None:
            self.cascade = Cascade(at, dict(running()), at, releases=dict(self.releases))
        self.cascade.confirmed = True
        self.cascade.last = max(self.cascade.last, at)
        return self.cascade

    def _close(self) -> Outcome | None:
        cascade, self.cascade, self.later = self.cascade, None, None
        if cascade is None:
            return None
        self.releases.clear()
        if not cascade.confirmed:
            return ("recovery", cascade)
        self.ended = cascade.last
        return ("incident", cascade)


def pool_incident(cascade: Cascade, geometry: Geometry, build: str | None) -> Incident:
    """The incident that a confirmed cascade was.

    The failed requests are the slots released around the error; where releases are not logged, the failed requests' own
    lines, but for those of tasks known not to run (some builds print one for every slot, idle ones too).
    """
    tasks = {task: slot for slot, (task, _) in cascade.running.items() if task is not None}
    errors = cascade.errors & tasks.keys() if tasks else cascade.errors
    held: dict[int, tuple[int | None, int | None]] = dict(cascade.releases)
    for task in errors:
        if task in tasks:
            held.setdefault(tasks[task], cascade.running[tasks[task]])
    if not held and not errors:
        held = dict(cascade.running)
    failed = max(len(held), len(errors), 1)
    capacity = geometry.capacity
    known = [tokens for _, tokens in held.values() if tokens is not None]
    total = sum(known) if known and len(known) == len(held) else None
    excess = total - capacity if total is not None and capacity is not None else None
    unplaced = cascade.unplaced_batch
    sized = {slot: tokens for slot, (_, tokens) in held.items() if tokens is not None}
    return Incident(
        cause="slot" if geometry.shared is False else "pool",
        started=cascade.started,
        ended=cascade.last,
        slots=tuple(
            IncidentSlot(slot, task, tokens, tokens / capacity if tokens is not None and capacity else None)
            for slot, (task, tokens) in sorted(held.items())
        ),
        requests_failed=failed,
        capacity=capacity,
        sum_tokens=total,
        excess_tokens=excess,
        unplaced_batch_tokens=unplaced,
        adds_up=excess == unplaced if excess is not None and unplaced is not None else None,
        biggest_slot=max(sized, key=lambda slot: sized[slot]) if sized else None,
        build=build,
    )


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
