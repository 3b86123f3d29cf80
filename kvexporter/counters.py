"""The counts that one server's log gives, each line counted once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvexporter.facts import (
    LinesSuppressed,
    UnitEvent,
    UnitExited,
    UnitOutOfMemory,
    UnitRestartScheduled,
)
from kvexporter.llama import events as ev
from kvexporter.llama.endpoints import ENDPOINTS
from kvexporter.snapshot import CAUSES, Counters, Incident

_CODES = 60
_ENDED_TASKS = 1024
_EXITS = 50


@dataclass(slots=True)
class LogCounters:
    """Counts of one server. Everything is a count of lines or of what they say; nothing is estimated."""

    error_lines: int = 0
    pressure_lines: int = 0
    recoveries: int = 0
    purges: int = 0
    purged_tokens: int = 0
    context_shifts: int = 0
    answers_truncated: int = 0
    requests_cancelled: int = 0
    suppressed_lines: int = 0
    incidents: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    requests_failed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    http: dict[str, int] = field(default_factory=dict)
    """`path code` → lines."""
    unit_exits: dict[str, int] = field(default_factory=dict)
    unit_restarts: int = 0
    oom_kills: int = 0
    ended_tasks: list[int] = field(default_factory=list)
    """The latest ones, bounded: a cancellation that follows a task's end is no client giving up."""
    unplaced_said: bool = False
    """The last line about a batch named it: the retry line after it is about the same failure."""

    def observe(self, event: ev.Event) -> None:
        """Take one event of the log."""
        kind = type(event)
        count = _COUNTED.get(kind)
        if count is not None:
            count(self, event)
        if kind not in _BETWEEN_FAILURE_AND_RETRY:
            self.unplaced_said = False

    def unit(self, event: UnitEvent) -> None:
        """Take what systemd or journald says of the unit."""
        match event:
            case UnitExited(_, status):
                key = status if status in self.unit_exits or len(self.unit_exits) < _EXITS else "other"
                self.unit_exits[key] = self.unit_exits.get(key, 0) + 1
            case UnitRestartScheduled():
                self.unit_restarts += 1
            case UnitOutOfMemory():
                self.oom_kills += 1
            case LinesSuppressed(count):
                self.suppressed_lines += count
            case _:
                pass

    def _unplaced(self, event: ev.BatchUnplaced) -> None:
        self.pressure_lines += 1
        self.unplaced_said = True

    def _retried(self, event: ev.BatchRetried) -> None:
        # Oldest builds have only this line for a failed batch.
        self.pressure_lines += not self.unplaced_said

    def _purged(self, event: ev.SlotPurged) -> None:
        self.purges += 1
        self.purged_tokens += event.tokens

    def _shifted(self, event: ev.ContextShifted) -> None:
        self.context_shifts += 1

    def _released(self, event: ev.Released) -> None:
        self.answers_truncated += event.truncated
        self._end(event.task)

    def _failed(self, event: ev.RequestFailed) -> None:
        self._end(event.task)

    def _cancelled(self, event: ev.TaskCancelled) -> None:
        # The same line follows a request that had failed: it was not the client who gave up.
        if event.task not in self.ended_tasks:
            self.requests_cancelled += 1
            self._end(event.task)

    def asked(self, event: ev.HttpRequest) -> None:
        """A request was answered."""
        key = f"{event.path if event.path in ENDPOINTS else 'other'} {event.code}"
        if key in self.http or len(self.http) < len(ENDPOINTS) * _CODES:
            self.http[key] = self.http.get(key, 0) + 1

    def _new_process(self, event: ev.ProcessStarting) -> None:
        self.ended_tasks.clear()

    def incident(self, incident: Incident) -> None:
        """Count one incident and the requests that died in it."""
        self.incidents[incident.cause] += 1
        self.requests_failed[incident.cause] += incident.requests_failed

    def snapshot(self, *, of_unit: bool) -> Counters:
        """The counts now. `of_unit`: a systemd unit is followed, so that its restarts are known."""
        return Counters(
            incidents=dict(self.incidents),
            requests_failed=dict(self.requests_failed),
            error_lines=self.error_lines,
            pressure_lines=self.pressure_lines,
            recoveries=self.recoveries,
            purges=self.purges,
            purged_tokens=self.purged_tokens,
            context_shifts=self.context_shifts,
            answers_truncated=self.answers_truncated,
            requests_cancelled=self.requests_cancelled,
            http_requests={_path_and_code(key): count for key, count in self.http.items()},
            unit_restarts=self.unit_restarts if of_unit else None,
            unit_exits=dict(self.unit_exits),
            oom_kills=self.oom_kills if of_unit else None,
            suppressed_lines=self.suppressed_lines,
        )

    def _end(self, task: int | None) -> None:
        if task is not None:
            self.ended_tasks.append(task)
            if len(self.ended_tasks) >= 2 * _ENDED_TASKS:
                del self.ended_tasks[:_ENDED_TASKS]


_COUNTED: dict[type, Callable[[LogCounters, Any], None]] = {
    ev.BatchUnplaced: LogCounters._unplaced,
    ev.BatchRetried: LogCounters._retried,
    ev.SlotPurged: LogCounters._purged,
    ev.ContextShifted: LogCounters._shifted,
    ev.Released: LogCounters._released,
    ev.RequestFailed: LogCounters._failed,
    ev.TaskCancelled: LogCounters._cancelled,
    ev.HttpRequest: LogCounters.asked,
    ev.ProcessStarting: LogCounters._new_process,
}
"""By kind, not by a chain of tests: a backlog has millions of events."""

_BETWEEN_FAILURE_AND_RETRY = frozenset(
    {ev.BatchUnplaced, ev.SlotPurged, ev.SlotCleared, ev.HttpRequest, ev.TaskCancelled}
)
"""The server's own steps between the two, and what its HTTP threads print at any moment."""


def _path_and_code(key: str) -> tuple[str, str]:
    path, _, code = key.partition(" ")
    return path, code
