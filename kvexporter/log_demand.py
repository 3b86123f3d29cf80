"""What running requests were known to need, and since when that is nearly all of the pool, by the log's lines alone.

For the incident's own record, so nothing but lines goes in: the same lines give the same number. The live forecast
(`forecast.py`) knows more, for polls tell the answers' limits and what is silent in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvexporter.llama import events as ev
from kvexporter.llama.slots import MOST_SLOTS
from kvexporter.pool_geometry import Geometry

NEARLY_ALL = 0.97
"""Of the pool, from which on it is known that it will not do: the log is silent of small prompts, whose rest fills it.
What LlamaPoolFillingUp warns at too."""
ROUNDING = 0.05
"""Progress figures are rounded, so the sum moves by some per cent though nothing has changed: it counts as needed until
the sum is this part of the pool below."""


@dataclass(slots=True)
class LoggedRequest:
    """What the log told of one running request, in tokens."""

    task: int | None
    parent: int | None = None
    """The task whose prompt it shares."""
    prompt: int | None = None
    at_least: float = 0.0
    at_most: float | None = None
    """Bounds of the whole prompt's size, from rounded progress figures."""
    held: int = 0
    answered: int = 0
    needs: int = 0
    """What it counts in the sum."""

    def reading(self, event: ev.PromptProgress) -> None:
        self.held = max(self.held, event.tokens)
        if event.progress <= 0:
            return
        half = event.step / 2
        self.at_least = max(self.at_least, event.tokens / min(1.0, event.progress + half), float(event.tokens))
        if event.progress > event.step:
            most = event.tokens / (event.progress - half)
            self.at_most = max(self.at_least, most if self.at_most is None else min(self.at_most, most))

    def size(self, context: int | None) -> int:
        """The whole prompt as told, else the middle of its bounds, else what is there; and the answer so far."""
        prompt = self.prompt
        if prompt is None:
            prompt = round((self.at_least + (self.at_least if self.at_most is None else self.at_most)) / 2)
        whole = max(self.held, prompt) + max(0, self.answered - 1)
        return whole if context is None else min(whole, context)


@dataclass(slots=True)
class LogDemand:
    """The running requests of one server as its log shows them, and since when they need all of the pool or nearly."""

    requests: dict[int, LoggedRequest] = field(default_factory=dict)
    """Slot → the request that it works on."""
    total: int = 0
    above_since: float | None = None
    family: int | None = None
    """The task launched last that is no further answer to another one's prompt."""

    def observe(self, event: ev.Event, at: float, geometry: Geometry) -> None:
        """Take one event of a type in `TOLD_BY`. `geometry` is what is known of the pool now."""
        TOLD_BY[type(event)](self, event, geometry.slot_context)
        capacity = geometry.capacity
        if capacity is None or self.total < capacity * (NEARLY_ALL - ROUNDING):
            self.above_since = None
        elif self.total >= capacity * NEARLY_ALL and self.above_since is None:
            self.above_since = at

    def _launched(self, event: ev.TaskLaunched, context: int | None) -> None:
        if not event.child:
            self.family = event.task
        self._begin(event.slot, event.task, self.family if event.child else None)

    def _prompted(self, event: ev.PromptStarted, context: int | None) -> None:
        request = self._of(event.slot, event.task)
        if request is not None:
            request.prompt = event.prompt_tokens
            self._count(request, context)

    def _progressed(self, event: ev.PromptProgress, context: int | None) -> None:
        request = self._of(event.slot, event.task)
        if request is not None:
            request.reading(event)
            self._count(request, context)

    def _held(self, event: ev.PromptReused, context: int | None) -> None:
        request = self._of(event.slot, event.task)
        if request is not None:
            request.held = event.tokens
            self._count(request, context)

    def _read(self, event: ev.PromptDone, context: int | None) -> None:
        request = self._of(event.slot, event.task)
        if request is not None:
            request.prompt = request.held = event.tokens
            self._count(request, context)

    def _answered(self, event: ev.GenerationTick, context: int | None) -> None:
        request = self._of(event.slot, event.task)
        if request is not None:
            request.answered = event.decoded
            self._count(request, context)

    def _shifted(self, event: ev.ContextShifted, context: int | None) -> None:
        request = self._of(event.slot, event.task)
        if request is not None:
            request.prompt = request.held = max(0, request.size(context) - event.discarded)
            request.answered = 0
            self._count(request, context)

    def _released(self, event: ev.Released, context: int | None) -> None:
        gone = self.requests.pop(event.slot, None)
        if gone is None:
            return
        self.total -= gone.needs
        if gone.parent is None and gone.task is not None:
            for other in self.requests.values():
                if other.parent == gone.task:  # one of the other answers still holds the prompt
                    other.parent, other.prompt, other.held = None, gone.prompt, gone.held
                    other.at_least, other.at_most = gone.at_least, gone.at_most
                    self._count(other, context)
                    break

    def _ended(self, event: ev.Event, context: int | None) -> None:
        self.requests.clear()
        self.total = 0

    def _of(self, slot: int, task: int | None) -> LoggedRequest | None:
        """The slot's request, which a missed launch line may make known only now; None beyond the bound."""
        request = self.requests.get(slot)
        if request is None or (task is not None and task != request.task):
            return self._begin(slot, task, None)
        return request

    def _begin(self, slot: int, task: int | None, parent: int | None) -> LoggedRequest | None:
        before = self.requests.get(slot)
        if before is None and len(self.requests) >= MOST_SLOTS:
            return None
        self.total -= before.needs if before is not None else 0
        request = self.requests[slot] = LoggedRequest(task, parent)
        return request

    def _count(self, request: LoggedRequest, context: int | None) -> None:
        needs = request.size(context) if request.parent is None else max(0, request.answered - 1)
        self.total += needs - request.needs
        request.needs = needs


TOLD_BY: dict[type, Callable[[LogDemand, Any, int | None], None]] = {
    ev.TaskLaunched: LogDemand._launched,
    ev.PromptStarted: LogDemand._prompted,
    ev.PromptProgress: LogDemand._progressed,
    ev.PromptReused: LogDemand._held,
    ev.PromptDone: LogDemand._read,
    ev.GenerationTick: LogDemand._answered,
    ev.ContextShifted: LogDemand._shifted,
    ev.Released: LogDemand._released,
    ev.AllSlotsIdle: LogDemand._ended,
    ev.Sleeping: LogDemand._ended,
    ev.ModelLoading: LogDemand._ended,
    ev.ProcessStarting: LogDemand._ended,
    ev.Stopping: LogDemand._ended,
}
"""The events that change it. By kind, not by a chain of tests: a backlog has millions of events."""
