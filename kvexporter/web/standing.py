"""How a server stands at one moment: one level, that of the gravest alert that holds, and one short sentence. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from kvexporter.alerting.conditions import Held, recent_restarts, server_alerts
from kvexporter.incident_words import counted
from kvexporter.rules import thresholds as limit
from kvexporter.rules.pool import (
    ALMOST_FULL,
    CONTEXT_EXCEEDED,
    DEFERRED,
    FILLING_UP,
    OVERCOMMITTED,
    PRESSURE,
    REQUEST_TOO_LONG,
    RUNS_ON,
    STALLED,
)
from kvexporter.rules.server import CRASH_LOOPING, DOWN, LOADING, OUT_OF_MEMORY
from kvexporter.snapshot import PoolSnapshot, ServerSnapshot
from kvexporter.web.amounts import duration, percent

Level = Literal["page", "warning", "unknown", "info", "ok"]
LEVELS: tuple[Level, ...] = ("page", "warning", "unknown", "info", "ok")
"""The worst first. page, warning and info are the alerts' severities."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One level and why."""

    level: Level
    text: str
    """Without a full stop, short enough for one line on a phone."""

    @property
    def rank(self) -> int:
        """0 is the worst: what to sort by."""
        return LEVELS.index(self.level)


def standing(server: ServerSnapshot, at: float) -> Standing:
    """Say how the server stands: the worst that is true of it, of equals the one that is named first here."""
    return min(_all(server, at), key=lambda found: found.rank)


def _all(server: ServerSnapshot, at: float) -> Iterator[Standing]:
    held = server_alerts(server, at)
    if any(one.rule is CRASH_LOOPING for one in held):
        yield Standing(CRASH_LOOPING.severity, _crash_loop(server, at))
    yield from _down(server, held)
    for one in held:
        if one.rule is not CRASH_LOOPING and one.rule is not DOWN:
            yield Standing(one.rule.severity, _TEXTS[one.rule.name](server, one, at))
    if server.state == "loading":
        yield Standing("info", "Loading its model")
    if server.catching_up:
        yield Standing("unknown", "Its log is still being read")
    if server.state is None:
        yield Standing("unknown", "Nothing is known of it yet")
    if server.requests_deferred:
        yield Standing("info", _deferred(server.requests_deferred))
    yield _shape(server)


def _down(server: ServerSnapshot, held: tuple[Held, ...]) -> Iterator[Standing]:
    """Who looks at the page sees at once what the alert says after a while, in case it does not last."""
    killed = any(one.rule is OUT_OF_MEMORY for one in held)
    if server.state == "down" and server.life.stopped_on_request:
        yield Standing("info", "Stopped on request")
    elif server.state == "down":
        yield Standing(DOWN.severity, "Down: killed for want of memory" if killed else "Down")
    elif any(one.rule is DOWN for one in held):
        yield Standing(DOWN.severity, "Does not answer")


def _crash_loop(server: ServerSnapshot, at: float) -> str:
    restarts = len(recent_restarts(server, at))
    return f"Crash loop: {restarts} restarts in {duration(limit.CRASH_WINDOW)}, exit code {server.life.exit_code}"


def _killed(server: ServerSnapshot, held: Held, at: float) -> str:
    return f"Killed for want of memory {_ago(at - held.since)}"


def _loading(server: ServerSnapshot, held: Held, at: float) -> str:
    return f"Loading its model for {_minutes(at - held.since)}"


def _waiting(server: ServerSnapshot, held: Held, at: float) -> str:
    return f"{_deferred(server.requests_deferred or 0)}, for {_minutes(at - held.since)}"


def _deferred(requests: int) -> str:
    return f"{counted(requests, 'request')} {'waits' if requests == 1 else 'wait'} for a slot"


def _incident(server: ServerSnapshot, held: Held, at: float) -> str:
    incident = held.incident
    if incident is None:
        return "Requests died"
    lately = [found for found in server.incidents if at - found.ended < limit.INCIDENT_WINDOW]
    if server.open_incident is not None:
        lately.append(server.open_incident)
    times = sum(found.cause == incident.cause for found in lately)
    died = counted(incident.requests_failed, "request")
    more = "" if times <= 1 else f", {counted(times, 'time')} in all"
    if incident.cause == "pool":
        return f"The pool ran out {_ago(at - incident.ended)}: {died} died{more}"
    return f"{died} died of a slot's own limit {_ago(at - incident.ended)}{more}"


def _pressure(server: ServerSnapshot, held: Held, at: float) -> str:
    if server.cascade_since is not None:
        return "Batches find no room in the pool right now"
    return f"A batch found no room {_ago(at - held.since)}"


def _almost_full(server: ServerSnapshot, held: Held, at: float) -> str:
    pool = server.pool or _NO_POOL
    return f"Almost full{_left(pool) or f': {percent(pool.fill_peak_ratio)} within the last minute'}"


def _filling(server: ServerSnapshot, held: Held, at: float) -> str:
    pool = server.pool or _NO_POOL
    needed = pool.committed_ratio
    if pool.seconds_to_full is not None:
        return f"Filling up{_left(pool)}"
    if needed is not None and needed > (pool.fill_peak_ratio or 0.0):
        return f"The running requests will need {percent(needed)} of the pool"
    return f"Nearly full: {percent(pool.fill_peak_ratio)} within the last minute"


def _left(pool: PoolSnapshot) -> str:
    return "" if pool.seconds_to_full is None else f": full in about {duration(pool.seconds_to_full)}"


def _stalled(server: ServerSnapshot, held: Held, at: float) -> str:
    return f"Slot {held.slot}: nothing has changed for {_minutes(at - held.since)}"


def _runs_on(server: ServerSnapshot, held: Held, at: float) -> str:
    return f"Slot {held.slot}: its request has run for {_minutes(at - held.since)}"


_NO_POOL = PoolSnapshot(0, None, None, None, None)

_TEXTS: dict[str, Callable[[ServerSnapshot, Held, float], str]] = {
    OUT_OF_MEMORY.name: _killed,
    LOADING.name: _loading,
    DEFERRED.name: _waiting,
    CONTEXT_EXCEEDED.name: _incident,
    REQUEST_TOO_LONG.name: _incident,
    PRESSURE.name: _pressure,
    ALMOST_FULL.name: _almost_full,
    FILLING_UP.name: _filling,
    STALLED.name: _stalled,
    RUNS_ON.name: _runs_on,
}
"""What is said of each alert that holds. Its level is the alert's severity."""


def _shape(server: ServerSnapshot) -> Standing:
    ratio = server.geometry.overcommit_ratio
    if ratio is not None and ratio > limit.OVERCOMMIT_RATIO:
        return Standing(OVERCOMMITTED.severity, f"Room now, but {ratio:.3g} times the pool is promised")
    if server.state == "sleeping":
        return Standing("ok", "Sleeps until the next request")
    if ratio is None:
        return Standing("unknown", "It is not known whether the pool can run out")
    return Standing("ok", "The pool cannot run out")


def _ago(seconds: float) -> str:
    # In whole minutes: a text that changes each second would be news each second.
    return "just now" if seconds < 60 else f"{_minutes(seconds)} ago"


def _minutes(seconds: float) -> str:
    return duration(seconds // 60 * 60)
