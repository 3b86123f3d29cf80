"""How full one server's pool is after each fact: for the time spent at each fill, the peak and the forecast."""

from __future__ import annotations

from kvexporter.server_parts import ServerParts
from kvexporter.slot_state import LONG_AGO


def settle(parts: ServerParts, at: float) -> None:
    """After a fact: the fill that is in force from now on."""
    parts.unsettled = False
    availability = parts.availability
    state = availability.state
    parts.spells.available(availability.up, state, at)
    capacity = parts.geometry.capacity
    fill = None
    if capacity and state not in ("down", "loading", None) and tasks_told(parts, at):
        processing = processing_tokens(parts, at)
        if processing is not None:
            fill = processing / capacity
            if at >= parts.foreseen_from and (not parts.behind or at <= parts.now):
                parts.forecast.observe(parts.pool.slots.values(), parts.geometry, at)
    parts.occupancy.set(fill, at if at > parts.now else parts.now)


def incident_ended(parts: ServerParts, at: float) -> None:
    """The pool was full, however short, and some builds empty the failed slots' caches."""
    parts.unsettled = True
    ledger, pool = parts.ledger, parts.pool
    incident = ledger.incidents[-1]
    if incident.cause == "pool" and incident.capacity:
        held = incident.capacity if incident.sum_tokens is None else min(incident.sum_tokens, incident.capacity)
        parts.occupancy.touch(held / incident.capacity, at)
    running = pool.running()
    for slot in ledger.failed_slots:
        if slot not in running:
            pool.clear(slot, at)


def tasks_told(parts: ServerParts, now: float) -> bool:
    """Something tells which slots run tasks: the log, or polls that still come."""
    if parts.availability.state == "sleeping" or parts.log_tells_tasks:
        return True
    return "slots" in parts.polls.last and not parts.polls.lost("slots", now)


def processing_tokens(parts: ServerParts, now: float) -> int | None:
    """Tokens of the slots that run a task; None where that is not known."""
    return parts.pool.processing_tokens(oldest(parts, now), now - parts.polls.patience)


def oldest(parts: ServerParts, now: float) -> float:
    """Running tasks' sizes from before this are too old: polls told them, and have stopped coming."""
    polls = parts.polls
    if polls.regular("slots", now):
        return LONG_AGO
    decoding = parts.log_tells_tasks and parts.pool.reads_on
    return now - polls.patience if polls.lost("slots", now, decoding=decoding) else LONG_AGO
