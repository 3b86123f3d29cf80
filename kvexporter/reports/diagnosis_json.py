"""A diagnosis as JSON: one object per server, in a list. The fields are documented in docs/diagnose.md. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kvexporter.diagnosing.logbook import ServerStory
from kvexporter.incident_fields import incident_fields, moment_field
from kvexporter.reports.advice import Advice
from kvexporter.reports.diagnosis import Diagnosis
from kvexporter.snapshot import Incident


def diagnoses_json(diagnoses: Sequence[Diagnosis]) -> str:
    """Give the text, with a line break at its end."""
    return json.dumps([_server(each) for each in diagnoses], indent=2, ensure_ascii=False) + "\n"


def _server(diagnosis: Diagnosis) -> dict[str, object]:
    story, sizes = diagnosis.story, diagnosis.request_tokens
    geometry, counts = story.geometry, story.counters
    return {
        "server": story.name,
        "unit": story.unit,
        "build": story.build,
        "model": story.model,
        "first_line": _moment(story, story.first),
        "last_line": _moment(story, story.last),
        "verdict": {"code": diagnosis.verdict.code, "text": diagnosis.verdict.text, "found": diagnosis.verdict.found},
        "geometry": {
            "slots": geometry.slots,
            "slot_context_tokens": geometry.slot_context,
            "pool_capacity_tokens": geometry.capacity,
            "pool_shared": geometry.shared,
            "promised_tokens": geometry.promised,
            "overcommit_ratio": geometry.overcommit_ratio,
            "guaranteed_tokens": geometry.guaranteed,
            "source": geometry.source,
        },
        "counts": {
            "log_lines": counts.error_lines,
            "incidents": dict(counts.incidents),
            "requests_failed": dict(counts.requests_failed),
            "recoveries": counts.recoveries,
            "purges": counts.purges,
            "context_shifts": counts.context_shifts,
            "answers_truncated": counts.answers_truncated,
            "restarts": counts.unit_restarts,
            "exits": dict(sorted(counts.unit_exits.items())),
            "oom_kills": counts.oom_kills,
            "starts": story.starts,
            "requests_cancelled": counts.requests_cancelled,
            "suppressed_lines": counts.suppressed_lines,
        },
        "incidents": [_incident(story, incident) for incident in story.incidents],
        "request_tokens": {"count": sizes.count, "p50": sizes.p50, "p95": sizes.p95, "max": sizes.largest},
        "clients": [
            {"address": client.address, "requests": client.requests, "failed": client.failed}
            for client in diagnosis.clients
        ],
        "advice": [_advice(advice) for advice in diagnosis.advice],
        "notes": list(diagnosis.notes),
    }


def _incident(story: ServerStory, incident: Incident) -> dict[str, object]:
    fields = incident_fields(incident, since_start=story.since_start)
    return {**fields, "started": _moment(story, incident.started), "ended": _moment(story, incident.ended)}


def _moment(story: ServerStory, at: float | None) -> str | float | None:
    return None if at is None or not story.has_times else moment_field(at, story.since_start)


def _advice(advice: Advice) -> dict[str, object]:
    return {
        "flags": list(advice.flags),
        "guaranteed_tokens": advice.guaranteed_tokens,
        "kv_bytes": advice.kv_bytes,
        "why": advice.why,
        "flags_any_build": list(advice.flags_any_build),
    }
