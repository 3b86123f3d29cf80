"""What one event of a server's log changes in its model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvexporter.llama import events as ev
from kvexporter.server_fill import incident_ended, settle
from kvexporter.server_parts import ServerParts

_OF_NO_SLOT = frozenset(
    {
        ev.HttpRequest,
        ev.Timing,
        ev.TimingHeader,
        ev.BatchUnplaced,
        ev.BatchRetried,
        ev.ContextExceeded,
        ev.DecodeFailed,
        ev.RequestFailed,
        ev.TaskCancelled,
    }
)
"""Events that tell nothing of slots, geometry or state by themselves, and are half of all."""


def take_event(parts: ServerParts, event: ev.Event, at: float) -> None:
    """Take one event: into the books, the slots, the geometry and the state, whichever it tells of."""
    ledger = parts.ledger
    if type(event) is ev.HttpRequest and ledger.tracker.cascade is None:
        ledger.counters.asked(event)  # all that it changes, and a fifth of all events
        if parts.unsettled:
            settle(parts, at)
        return
    incidents = ledger.incidents_seen
    ledger.event(event, at, parts.geometry, parts.build)
    kind = type(event)
    tells = kind not in _OF_NO_SLOT
    if tells:
        availability = parts.availability
        state = availability.state
        availability.log(event)
        change = _CHANGES.get(kind)
        if change is not None:
            change(parts, event, at)
        elif parts.shape.startup.observe(event):
            _startup_told(parts, event, at)
        if availability.state != state:
            parts.reshape()
        if parts.unit_life.stopped_on_request and availability.up:
            parts.unit_life.works(at)
    if ledger.incidents_seen != incidents:
        incident_ended(parts, at)
    if tells or parts.unsettled:
        settle(parts, at)


def _startup_told(parts: ServerParts, event: ev.Event, at: float) -> None:
    match event:
        case ev.ProcessStarting(build):
            if not parts.starting:
                parts.new_life(at)
            parts.build = build or parts.build
        case ev.ModelLoading(model):
            parts.starting = False
            parts.pool.restart()
            parts.shape.forget_api()
            parts.model = model or parts.model
            parts.logged_model = model
        case ev.PoolInitialized() | ev.SlotsInitializing():
            parts.starting = False
            parts.info_seen = True
            parts.pool.restart()
    parts.reshape()


def _launched(parts: ServerParts, event: ev.TaskLaunched, at: float) -> None:
    parts.info_seen = True
    parts.pool.launch(event.slot, event.task, at, child=event.child)
    if _clears_idle_slots(parts):
        parts.pool.clear_idle(but=event.slot, at=at)


def _clears_idle_slots(parts: ServerParts) -> bool:
    """Builds that print the one start-up line drop idle slots' caches when a task starts, and say nothing of it."""
    options = parts.shape.options
    if options is not None and (options.cache_idle_slots is False or options.cache_ram_mib == 0):
        return False
    return parts.shape.startup.drops_idle_caches and parts.geometry.shared is True


def _released(parts: ServerParts, event: ev.Released, at: float) -> None:
    parts.info_seen = True
    parts.pool.release(event.slot, event.task, event.tokens, at)


def _listening(parts: ServerParts, event: ev.Listening, at: float) -> None:
    parts.listening = (event.host, event.port)


def _verbosity_told(parts: ServerParts, event: ev.Verbosity, at: float) -> None:
    parts.verbosity = event.level


_CHANGES: dict[type, Callable[[ServerParts, Any, float], None]] = {
    ev.GenerationTick: lambda s, e, at: s.pool.answered(e.slot, e.task, e.decoded, at),
    ev.PromptProgress: lambda s, e, at: s.pool.reading(e.slot, e.task, e.tokens, e.progress, e.step, at),
    ev.PromptReused: lambda s, e, at: s.pool.held(e.slot, e.task, e.tokens, at),
    ev.PromptDone: lambda s, e, at: s.pool.read(e.slot, e.task, e.tokens, at),
    ev.SlotChosen: lambda s, e, at: s.pool.choose(e.slot, e.similarity, e.kept, e.step),
    ev.TaskLaunched: _launched,
    ev.Released: _released,
    ev.PromptStarted: lambda s, e, at: s.pool.prompt(e.slot, e.task, e.prompt_tokens, at),
    ev.AllSlotsIdle: lambda s, e, at: s.pool.all_idle(at),
    ev.ContextShifted: lambda s, e, at: s.pool.shift(e.slot, e.task, e.discarded, e.kept, at),
    ev.SlotPurged: lambda s, e, at: s.pool.clear(e.slot, at),
    ev.SlotCleared: lambda s, e, at: s.pool.clear(e.slot, at),
    ev.Listening: _listening,
    ev.Sleeping: lambda s, e, at: s.pool.restart(),
    ev.Waking: lambda s, e, at: s.pool.restart(),
    ev.Verbosity: _verbosity_told,
    ev.Stopping: lambda s, e, at: s.gone(),
}
"""By kind, not by a chain of tests: a backlog has millions of events."""
