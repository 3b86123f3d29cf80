"""One server as JSON fields: in short, as the list and the event stream have it, and in full. Pure.

Unknown is null. Times are ISO 8601 in UTC, sizes bytes, ratios go from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from kvexporter.fill_history import POINTS, STEP_SECONDS
from kvexporter.incident_fields import incident_fields
from kvexporter.incident_words import incident_words
from kvexporter.pool_geometry import Geometry
from kvexporter.reports.findings import Finding
from kvexporter.snapshot import CAUSES, ExporterSnapshot, Incident, PoolSnapshot, ServerSnapshot, SlotSnapshot
from kvexporter.web.advice import advice_fields
from kvexporter.web.amounts import clean, duration, time_text
from kvexporter.web.memory_fields import memory_fields
from kvexporter.web.problems import server_problems
from kvexporter.web.server_words import server_words
from kvexporter.web.standing import standing

Fields = dict[str, object]


def server_summary(server: ServerSnapshot, host: ExporterSnapshot) -> Fields:
    """Give what changes from second to second, and what is needed to understand it."""
    stands = standing(server, host.at)
    return {
        "name": clean(server.name),
        "unit": clean(server.unit),
        "url": clean(server.url),
        "model": clean(server.model),
        "build": clean(server.build),
        "up": server.up,
        "state": server.state,
        "standing": {"level": stands.level, "rank": stands.rank, "text": stands.text},
        "words": server_words(server),
        "geometry": _geometry(server.geometry),
        "kv_cache_bytes": server.kv_cache_bytes,
        "kv_bytes_per_token": server.kv_bytes_per_token,
        "requests_processing": server.requests_processing,
        "requests_deferred": server.requests_deferred,
        "pool": _pool(server.pool),
        "slots": [_slot(slot, server.geometry.capacity) for slot in server.slots],
        "counts": _counts(server),
        "last_incident": time_text(server.last_incident.ended) if server.last_incident is not None else None,
        "memory": memory_fields(server, host),
        "problems": problem_fields(server_problems(server)),
    }


def server_detail(server: ServerSnapshot, host: ExporterSnapshot) -> Fields:
    """Give all of it: with the course of the last hour, the incidents (latest first) and the advice."""
    return {
        **server_summary(server, host),
        "fill_history": _history(server, host.at),
        "incidents": [incident_with_words(found) for found in reversed(server.incidents)],
        "advice": advice_fields(server),
        "last_answers": {endpoint: time_text(at) for endpoint, at in server.last_poll.items()},
        "failing": dict(server.failing),
    }


def incident_with_words(incident: Incident) -> Fields:
    """Give an incident's fields, with what happened and how long it had been coming in sentences."""
    coming = incident.demand_above_seconds
    return {
        **incident_fields(incident),
        "build": clean(incident.build),
        "text": incident_words(incident),
        "coming": None
        if coming is None
        else f"For {duration(coming)} before, the running requests were known to need 97 % of the pool or more.",
    }


def problem_fields(found: Sequence[Finding]) -> list[Fields]:
    """Give what could not be read."""
    return [{**asdict(problem), "subject": clean(problem.subject)} for problem in found]


def _geometry(geometry: Geometry) -> Fields:
    return {
        "slots": geometry.slots,
        "slot_context_tokens": geometry.slot_context,
        "capacity_tokens": geometry.capacity,
        "shared": geometry.shared,
        "promised_tokens": geometry.promised,
        "overcommit_ratio": geometry.overcommit_ratio,
        "guaranteed_tokens": geometry.guaranteed,
        "source": geometry.source,
    }


def _pool(pool: PoolSnapshot | None) -> Fields | None:
    if pool is None:
        return None
    return {
        "processing_tokens": pool.processing_tokens,
        "idle_tokens": pool.idle_tokens,
        "fill_ratio": pool.fill_ratio,
        "resident_ratio": pool.resident_ratio,
        "fill_peak_ratio": pool.fill_peak_ratio,
        "committed_tokens": pool.committed_tokens,
        "committed_ratio": pool.committed_ratio,
        "demand_tokens": pool.demand_tokens,
        "demand_ratio": pool.demand_ratio,
        "seconds_to_full": pool.seconds_to_full,
    }


def _slot(slot: SlotSnapshot, capacity: int | None) -> Fields:
    return {
        "slot": slot.id,
        "processing": slot.processing,
        "tokens": slot.tokens,
        "share": slot.tokens / capacity if slot.tokens is not None and capacity else None,
        "task": slot.task,
        "prompt_tokens": slot.prompt_tokens,
        "task_age_seconds": _rounded(slot.task_age),
        "stalled_seconds": _rounded(slot.stalled),
    }


def _counts(server: ServerSnapshot) -> Fields | None:
    """None without a log: then nobody has counted."""
    if not server.has_log:
        return None
    counters = server.counters
    return {
        "incidents": {cause: counters.incidents.get(cause, 0) for cause in CAUSES},
        "requests_failed": {cause: counters.requests_failed.get(cause, 0) for cause in CAUSES},
        "error_lines": counters.error_lines,
        "pressure_lines": counters.pressure_lines,
        "restarts": counters.unit_restarts,
        "exits": dict(sorted(counters.unit_exits.items())),
        "oom_kills": counters.oom_kills,
        "lower_bound": counters.suppressed_lines > 0,
    }


def _history(server: ServerSnapshot, at: float) -> Fields | None:
    """The last hour in equal steps, up to the one under way; null where the fill was not known."""
    points = dict(server.fill_history)
    if not points:
        return None
    end = max(at // STEP_SECONDS * STEP_SECONDS, max(points))
    starts = [end - (POINTS - 1 - step) * STEP_SECONDS for step in range(POINTS)]
    if points.keys().isdisjoint(starts):
        return None  # the last one that is known is just leaving the hour
    return {
        "start": time_text(starts[0]),
        "step_seconds": STEP_SECONDS,
        "highest_ratios": [_rounded(points.get(start), 4) for start in starts],
    }


def _rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)
