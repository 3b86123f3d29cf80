"""An incident in one sentence, for logs and reports. Pure."""

from __future__ import annotations

from kvexporter.snapshot import Incident, IncidentSlot

MOST_SLOTS = 4
"""Slots that are named, the biggest first; the others are counted."""


def incident_words(incident: Incident) -> str:
    """Say who held what when requests died, without the time."""
    return _pool_words(incident) if incident.cause == "pool" else _slot_words(incident)


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 request`, `2 requests`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _pool_words(incident: Incident) -> str:
    text = f"the pool ran out: {counted(incident.requests_failed, 'request')} died"
    held = sorted((slot for slot in incident.slots if slot.tokens is not None), key=_size, reverse=True)
    if held:
        parts = [f"slot {slot.slot} held {_size(slot):,} tokens{_share(slot)}" for slot in held[:MOST_SLOTS]]
        if len(held) > MOST_SLOTS:
            parts.append(f"{counted(len(held) - MOST_SLOTS, 'more slot')} the rest")
        text += f"; {', '.join(parts)}"
    if incident.sum_tokens is not None and incident.capacity is not None and incident.excess_tokens is not None:
        text += f"; together {incident.sum_tokens:,} of {incident.capacity:,}"
        if incident.excess_tokens > 0:
            text += f", {incident.excess_tokens:,} too many"
    if incident.adds_up is False:
        text += f" (the batch that found no room had {incident.unplaced_batch_tokens:,}: these do not add up)"
    return text


def _slot_words(incident: Incident) -> str:
    one = incident.requests_failed == 1
    where = "its slot's" if one else "their slots'"
    if one and incident.biggest_slot is not None:
        where = f"slot {incident.biggest_slot}'s"
    text = f"{counted(incident.requests_failed, 'request')} died of {where} own limit"
    size, excess = incident.request_tokens, incident.excess_tokens
    if one and size is not None:
        text += f"; it had {size:,} tokens"
        if excess is not None:
            text += f", {excess:,} more than the slot's {size - excess:,}"
    return text


def _size(slot: IncidentSlot) -> int:
    return slot.tokens or 0


def _share(slot: IncidentSlot) -> str:
    return "" if slot.share is None else f" ({slot.share:.1%})"
