"""The counts that one server's log gives, each line counted once."""

from __future__ import annotations

from collections import Counter, deque

from kvexporter.facts import (
    LinesSuppressed,
    UnitEvent,
    UnitExited,
    UnitOutOfMemory,
    UnitRestartScheduled,
)
from kvexporter.llama import events as ev
from kvexporter.snapshot import CAUSES, Counters, Incident

_PATHS = frozenset(
    {
        "/",
        "/health",
        "/v1/health",
        "/metrics",
        "/props",
        "/slots",
        "/models",
        "/v1/models",
        "/completion",
        "/completions",
        "/v1/completions",
        "/chat/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/infill",
        "/embedding",
        "/embeddings",
        "/v1/embeddings",
        "/rerank",
        "/reranking",
        "/v1/rerank",
        "/v1/reranking",
        "/tokenize",
        "/detokenize",
        "/apply-template",
        "/lora-adapters",
        "/api/chat",
        "/api/show",
        "/api/tags",
    }
)
"""The paths that are a label value of their own; clients can ask for anything, so the rest is `other`."""

_CODES = 60
_ENDED_TASKS = 1024
_EXITS = 50


class LogCounters:
    """Counts of one server. Everything is a count of lines or of what they say; nothing is estimated."""

    def __init__(self) -> None:
        self.error_lines = 0
        self.pressure_lines = 0
        self.recoveries = 0
        self.purges = 0
        self.purged_tokens = 0
        self.context_shifts = 0
        self.answers_truncated = 0
        self.requests_cancelled = 0
        self.suppressed_lines = 0
        self.incidents: Counter[str] = Counter(dict.fromkeys(CAUSES, 0))
        self.requests_failed: Counter[str] = Counter(dict.fromkeys(CAUSES, 0))
        self._http: Counter[tuple[str, str]] = Counter()
        self._unit_exits: Counter[str] = Counter()
        self._unit_restarts = 0
        self._oom_kills = 0
        self._ended_tasks: deque[int] = deque(maxlen=_ENDED_TASKS)
        self._unplaced_said = False

    def observe(self, event: ev.Event) -> None:
        """Take one event of the log."""
        match event:
            case ev.BatchUnplaced():
                self.pressure_lines += 1
                self._unplaced_said = True
                return
            case ev.BatchRetried():
                # Oldest builds have only this line for a failed batch.
                self.pressure_lines += not self._unplaced_said
            case ev.SlotPurged(_, tokens):
                self.purges += 1
                self.purged_tokens += tokens
                return  # between a batch's failure and its retry
            case ev.ContextShifted():
                self.context_shifts += 1
            case ev.Released(_, task, _, truncated):
                self.answers_truncated += truncated
                self._end(task)
            case ev.RequestFailed(task, _):
                self._end(task)
            case ev.TaskCancelled(task):
                # The same line follows a request that had failed: it was not the client who gave up.
                if task not in self._ended_tasks:
                    self.requests_cancelled += 1
                    self._end(task)
            case ev.HttpRequest(_, path, code):
                key = (path if path in _PATHS else "other", str(code))
                if key in self._http or len(self._http) < len(_PATHS) * _CODES:
                    self._http[key] += 1
            case ev.ProcessStarting():
                self._ended_tasks.clear()
        if not isinstance(event, ev.SlotCleared):
            self._unplaced_said = False

    def unit(self, event: UnitEvent) -> None:
        """Take what systemd or journald says of the unit."""
        match event:
            case UnitExited(_, status):
                key = status if status in self._unit_exits or len(self._unit_exits) < _EXITS else "other"
                self._unit_exits[key] += 1
            case UnitRestartScheduled():
                self._unit_restarts += 1
            case UnitOutOfMemory():
                self._oom_kills += 1
            case LinesSuppressed(count):
                self.suppressed_lines += count
            case _:
                pass

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
            http_requests=dict(self._http),
            unit_restarts=self._unit_restarts if of_unit else None,
            unit_exits=dict(self._unit_exits),
            oom_kills=self._oom_kills if of_unit else None,
            suppressed_lines=self.suppressed_lines,
        )

    def _end(self, task: int | None) -> None:
        if task is not None:
            self._ended_tasks.append(task)
