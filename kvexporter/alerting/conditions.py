"""Which alerts hold for a server, as the rules for Prometheus have it: the one table of it outside of Prometheus.

The pool's are sent straight from here; the page shows all that a snapshot tells. Pure: a snapshot and its time. Where a
rule counts within a window, the moments of the last such events tell the same without counting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvexporter.rules.pool import (
    ALMOST_FULL,
    CONTEXT_EXCEEDED,
    DEFERRED,
    FILLING_UP,
    PRESSURE,
    REQUEST_TOO_LONG,
    RUNS_ON,
    STALLED,
)
from kvexporter.rules.rule import AlertRule
from kvexporter.rules.server import CRASH_LOOPING, DOWN, LOADING, OUT_OF_MEMORY
from kvexporter.rules.thresholds import (
    CRASH_RESTARTS,
    CRASH_WINDOW,
    INCIDENT_WINDOW,
    OOM_WINDOW,
    OVERCOMMIT_RATIO,
    POOL_PAGE,
    POOL_WARN,
    PRESSURE_WINDOW,
    STALLED_SECONDS,
    TASK_AGE_SECONDS,
    PoolCondition,
)
from kvexporter.snapshot import Incident, ServerSnapshot

POOL_RULES: tuple[AlertRule, ...] = (CONTEXT_EXCEEDED, ALMOST_FULL, FILLING_UP, PRESSURE, REQUEST_TOO_LONG)
"""The alerts that are sent straight from here, the gravest first."""

SERVER_RULES: tuple[AlertRule, ...] = (CRASH_LOOPING, DOWN, OUT_OF_MEMORY, STALLED, RUNS_ON, DEFERRED, LOADING)
"""Those that are Prometheus' alone, and judged here for the page, the gravest first.

The others look back over hours (speed, memory), or are of a host or of kvexporter itself.
"""

SETTLED_SECONDS = 0.3
"""An error's releases are logged within milliseconds: so long after it, they are in the text too."""

OUTCOME_SECONDS = 1.0
"""A batch that found no room usually fails for good, or finds it, at once; pressure is what lasts longer or is over."""


@dataclass(frozen=True, slots=True)
class Held:
    """One alert that holds now."""

    rule: AlertRule
    since: float
    """Since when at least (unix seconds)."""
    incident: Incident | None = None
    """What it is about, where it is about one."""
    news: str = ""
    """Changes when there is something new to be told at once while the alert goes on."""
    slot: int | None = None
    """The slot that it is about, where it is about one."""


def server_alerts(server: ServerSnapshot, at: float) -> tuple[Held, ...]:
    """Give all alerts that hold for a server at `at` and that a snapshot tells; of equals the gravest first."""
    return (*_ends(server, at), *pool_alerts(server, at), *_of_slots(server, at), *_waits(server, at))


def pool_alerts(server: ServerSnapshot, at: float) -> tuple[Held, ...]:
    """Give the alerts that hold for a server at `at`, the gravest first."""
    return tuple(_holding(server, at))


def _holding(server: ServerSnapshot, at: float) -> Iterator[Held]:
    died = latest_incident(server, "pool", at)
    if died is not None:
        yield Held(CONTEXT_EXCEEDED, died.started, died, news=f"{died.started:.3f}")
    if _signs(server, POOL_PAGE):
        yield Held(ALMOST_FULL, at)
    if _signs(server, POOL_WARN):
        yield Held(FILLING_UP, at)
    refused = latest_incident(server, "slot", at)
    if died is None and refused is None and server.open_incident is None and _pressed(server, at):
        yield Held(PRESSURE, server.pressure_at or at)
    if refused is not None:
        # A client may try the same thing every second: that is no news.
        yield Held(REQUEST_TOO_LONG, refused.started, refused)


def _ends(server: ServerSnapshot, at: float) -> Iterator[Held]:
    life = server.life
    restarts = recent_restarts(server, at)
    exited = life.exited_at is not None and _within(life.exited_at, at, CRASH_WINDOW)
    if len(restarts) >= CRASH_RESTARTS and exited and not life.stopped_on_request:
        yield Held(CRASH_LOOPING, restarts[CRASH_RESTARTS - 1])
    if not life.stopped_on_request and _lasts(life.down_since, at, DOWN.hold):
        yield Held(DOWN, life.down_since or at)
    if life.oom_killed_at is not None and _within(life.oom_killed_at, at, OOM_WINDOW):
        yield Held(OUT_OF_MEMORY, life.oom_killed_at)


def _waits(server: ServerSnapshot, at: float) -> Iterator[Held]:
    life = server.life
    if _lasts(life.deferred_since, at, DEFERRED.hold):
        yield Held(DEFERRED, life.deferred_since or at)
    if _lasts(life.loading_since, at, LOADING.hold):
        yield Held(LOADING, life.loading_since or at)


def _of_slots(server: ServerSnapshot, at: float) -> Iterator[Held]:
    for slot in server.slots:
        if slot.stalled is not None and slot.stalled > STALLED_SECONDS:
            yield Held(STALLED, at - slot.stalled, slot=slot.id)
    for slot in server.slots:
        if slot.task_age is not None and slot.task_age > TASK_AGE_SECONDS:
            yield Held(RUNS_ON, at - slot.task_age, slot=slot.id)


def recent_restarts(server: ServerSnapshot, at: float) -> list[float]:
    """Give the times at which systemd started the unit anew by itself within the rules' window, oldest first."""
    return [moment for moment in server.life.restarts_at if _within(moment, at, CRASH_WINDOW)]


def latest_incident(server: ServerSnapshot, cause: str, at: float) -> Incident | None:
    """Give the latest incident of this cause within the rules' window, one that is not closed yet included."""
    found = server.open_incident
    if found is not None and found.cause == cause and at - found.ended >= SETTLED_SECONDS:
        return found
    found = next((incident for incident in reversed(server.incidents) if incident.cause == cause), None)
    return found if found is not None and _within(found.ended, at, INCIDENT_WINDOW) else None


def _pressed(server: ServerSnapshot, at: float) -> bool:
    if server.pressure_at is None or not _within(server.pressure_at, at, PRESSURE_WINDOW):
        return False
    return server.cascade_since is None or at - server.cascade_since >= OUTCOME_SECONDS


def _signs(server: ServerSnapshot, conditions: tuple[PoolCondition, ...]) -> bool:
    ratio, pool = server.geometry.overcommit_ratio, server.pool
    if pool is None or ratio is None or ratio <= OVERCOMMIT_RATIO:
        return False
    return any(condition.met_by(pool) for condition in conditions)


def _lasts(since: float | None, at: float, hold: float) -> bool:
    return since is not None and at - since >= hold


def _within(event: float, at: float, window: float) -> bool:
    # Also of a journal from a host whose clock is ahead: within the window at either side, and not for ever.
    return abs(at - event) < window
