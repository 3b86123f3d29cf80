"""From the lines around a context error to cascades of failing batches, and how each of them ended.

A cascade is opened by the first failing batch. An error (or its echo, or the failed requests' own lines) makes it an
incident; the lines of going on without one make it a recovery. Builds print the releases before or after the error,
some print the error only as an echo at the end, and people paste excerpts, so nothing here depends on one order or on
all lines being there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from kvexporter.cascade import Cascade, Running
from kvexporter.llama import events as ev
from kvexporter.llama.slots import MOST_SLOTS

SETTLE_SECONDS = 2.0
"""An error's releases follow within milliseconds; a longer silence in the log ends the incident."""

PATIENCE_SECONDS = 60.0
"""Between two failing batches of one cascade a smaller one is computed, which can take long on a slow machine."""

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
        follow = FOLLOWED.get(type(event))
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


FOLLOWED: dict[type, Callable[[CascadeTracker, Any, float, Callable[[], Running]], None]] = {
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
