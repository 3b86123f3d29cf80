"""One incident as plain JSON fields: the same in `diagnose`, `incidents`, the JSON API and webhooks.

Times are ISO 8601 in UTC, or plain seconds since the server's start where a bare log tells no others. Unknown is null.
"""

from __future__ import annotations

from datetime import UTC, datetime

from kvexporter.snapshot import Incident


def incident_fields(incident: Incident, *, since_start: bool = False) -> dict[str, object]:
    """Give the incident's fields. `since_start`: its times are seconds since the server's start."""
    return {
        "cause": incident.cause,
        "started": moment_field(incident.started, since_start),
        "ended": moment_field(incident.ended, since_start),
        "slots": [
            {"slot": slot.slot, "task": slot.task, "tokens": slot.tokens, "share": slot.share}
            for slot in incident.slots
        ],
        "sum_tokens": incident.sum_tokens,
        "capacity_tokens": incident.capacity,
        "excess_tokens": incident.excess_tokens,
        "unplaced_batch_tokens": incident.unplaced_batch_tokens,
        "biggest_slot": incident.biggest_slot,
        "requests_failed": incident.requests_failed,
        "request_tokens": incident.request_tokens,
        "adds_up": incident.adds_up,
        "demand_above_seconds": incident.demand_above_seconds,
        "build": incident.build,
    }


def moment_field(at: float, since_start: bool) -> str | float:
    """Give a moment as a JSON field."""
    if since_start:
        return at
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
