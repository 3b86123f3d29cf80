"""An incident as a table for people: who held what, the sum, and whether the numbers add up. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from kvexporter.incident_words import counted
from kvexporter.snapshot import Incident

COLUMNS = ("slot", "task", "tokens", "share of the pool")
UNKNOWN = "?"

_CAUSES = {"pool": "the pool ran out", "slot": "larger than its own slot"}


def incident_title(incident: Incident, when: str) -> str:
    """When it was, what it was, and how many requests died."""
    died = f"{counted(incident.requests_failed, 'request')} died"
    return ", ".join(part for part in (when, f"{_CAUSES[incident.cause]}: {died}") if part)


def incident_rows(incident: Incident) -> list[tuple[str, str, str, str]]:
    """One row for each slot, and the sum where there are several."""
    rows = [
        (str(slot.slot), number(slot.task), number(slot.tokens, ","), _share(slot.share)) for slot in incident.slots
    ]
    if len(incident.slots) > 1:
        total, capacity = incident.sum_tokens, incident.capacity
        share = total / capacity if total is not None and capacity else None
        rows.append(("sum", "", number(total, ","), _share(share)))
    return rows


def incident_remarks(incident: Incident) -> list[str]:
    """What the numbers mean, in sentences."""
    return _slot_remarks(incident) if incident.cause == "slot" else _pool_remarks(incident)


def moment(at: float, *, since_start: bool = False) -> str:
    """A time as people read it."""
    if since_start:
        return f"{at:,.1f} s after the start"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def number(value: int | None, form: str = "") -> str:
    """A number; a question mark where it is not known."""
    return UNKNOWN if value is None else format(value, form)


def _pool_remarks(incident: Incident) -> list[str]:
    remarks = []
    excess, batch = incident.excess_tokens, incident.unplaced_batch_tokens
    if excess is not None and incident.capacity is not None:
        over = f"{excess:,} more than the pool's" if excess > 0 else f"no more than the pool's ({excess:,})"
        text = f"Together they held {number(incident.sum_tokens, ',')}, {over} {incident.capacity:,} tokens"
        if incident.adds_up:
            text += ": exactly the batch that found no room"
        elif incident.adds_up is False:
            text += f", and the batch that found no room had {number(batch, ',')}: these do not add up"
        remarks.append(f"{text}.")
    elif batch is not None:
        remarks.append(f"The batch that found no room had {batch:,} tokens.")
    if incident.biggest_slot is not None and len(incident.slots) > 1:
        remarks.append(f"Slot {incident.biggest_slot} held most.")
    if incident.demand_above_seconds is not None and incident.demand_above_seconds >= 1:
        remarks.append(
            f"That 97 % of the pool or more would be needed was known {incident.demand_above_seconds:,.0f} s before."
        )
    return remarks


def _slot_remarks(incident: Incident) -> list[str]:
    size, excess = incident.request_tokens, incident.excess_tokens
    if size is None:
        return []
    if excess is None:
        return [f"The request had {size:,} tokens."]
    return [f"The request had {size:,} tokens, {excess:,} more than its slot's {size - excess:,}."]


def _share(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1%}"
