"""How a server stands at one moment: one level, by the thresholds of the alerts, and one short sentence. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kvexporter.incident_words import counted
from kvexporter.rules import thresholds as limit
from kvexporter.snapshot import Incident, PoolSnapshot, ServerSnapshot
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
    if server.state == "down":
        yield Standing("page", "Down")
    yield from _incidents(server, at)
    overcommitted = (server.geometry.overcommit_ratio or 0.0) > limit.OVERCOMMIT_RATIO
    if overcommitted and server.pool is not None:
        yield from _filling(server.pool)
    yield from _slots(server)
    if server.state == "loading":
        yield Standing("info", "Loading its model")
    if server.catching_up:
        yield Standing("unknown", "Its log is still being read")
    if server.state is None:
        yield Standing("unknown", "Nothing is known of it yet")
    if server.requests_deferred:
        waits = "waits" if server.requests_deferred == 1 else "wait"
        yield Standing("info", f"{counted(server.requests_deferred, 'request')} {waits} for a slot")
    yield _shape(server, overcommitted)


def _incidents(server: ServerSnapshot, at: float) -> Iterator[Standing]:
    lately = [found for found in server.incidents if at - found.ended <= limit.INCIDENT_WINDOW]
    if server.open_incident is not None:
        lately.append(server.open_incident)
    for cause in ("pool", "slot"):
        of_cause = [found for found in lately if found.cause == cause]
        if of_cause:
            yield _incident(of_cause[-1], at, len(of_cause))
    if server.cascade_since is not None:
        yield Standing("warning", "Batches find no room in the pool right now")
    elif server.pressure_at is not None and at - server.pressure_at <= limit.PRESSURE_WINDOW:
        yield Standing("warning", f"A batch found no room {_ago(at - server.pressure_at)}")


def _incident(incident: Incident, at: float, times: int) -> Standing:
    died = counted(incident.requests_failed, "request")
    more = "" if times == 1 else f", {counted(times, 'time')} in all"
    if incident.cause == "pool":
        return Standing("page", f"The pool ran out {_ago(at - incident.ended)}: {died} died{more}")
    return Standing("warning", f"{died} died of a slot's own limit {_ago(at - incident.ended)}{more}")


def _filling(pool: PoolSnapshot) -> Iterator[Standing]:
    left = "" if pool.seconds_to_full is None else f": full in about {duration(pool.seconds_to_full)}"
    needed = pool.committed_ratio
    if any(condition.met_by(pool) for condition in limit.POOL_PAGE):
        yield Standing("page", f"Almost full{left or f': {percent(pool.fill_peak_ratio)} within the last minute'}")
    if any(condition.met_by(pool) for condition in limit.POOL_WARN):
        if left:
            yield Standing("warning", f"Filling up{left}")
        elif needed is not None and needed > (pool.fill_peak_ratio or 0.0):
            yield Standing("warning", f"The running requests will need {percent(needed)} of the pool")
        else:
            yield Standing("warning", f"Nearly full: {percent(pool.fill_peak_ratio)} within the last minute")


def _slots(server: ServerSnapshot) -> Iterator[Standing]:
    for slot in server.slots:
        if slot.stalled is not None and slot.stalled >= limit.STALLED_SECONDS:
            yield Standing("warning", f"Slot {slot.id}: nothing has changed for {duration(slot.stalled)}")
    for slot in server.slots:
        if slot.task_age is not None and slot.task_age >= limit.TASK_AGE_SECONDS:
            yield Standing("warning", f"Slot {slot.id}: its request has run for {duration(slot.task_age)}")


def _shape(server: ServerSnapshot, overcommitted: bool) -> Standing:
    ratio = server.geometry.overcommit_ratio
    if overcommitted and ratio is not None:
        return Standing("info", f"Room now, but {ratio:.3g} times the pool is promised")
    if server.state == "sleeping":
        return Standing("ok", "Sleeps until the next request")
    if ratio is None:
        return Standing("unknown", "It is not known whether the pool can run out")
    return Standing("ok", "The pool cannot run out")


def _ago(seconds: float) -> str:
    # In whole minutes: a text that changes each second would be news each second.
    return "just now" if seconds < 60 else f"{duration(seconds // 60 * 60)} ago"
