"""What would mend a server's pool, as `diagnose` advises it, as JSON fields. Pure."""

from __future__ import annotations

from kvexporter.diagnosing.logbook import IncidentTotals, ServerStory
from kvexporter.reports.advice import Advice, advice_for
from kvexporter.reports.verdict import Verdict, verdict_of
from kvexporter.rules import thresholds as limit
from kvexporter.snapshot import ServerSnapshot
from kvexporter.web.amounts import size


def advice_fields(server: ServerSnapshot) -> list[dict[str, object]]:
    """Give the ways to mend a pool that promises more than there is, or of which requests died; cheapest first."""
    story = _story(server)
    verdict = verdict_of(story)
    overcommitted = (server.geometry.overcommit_ratio or 0.0) > limit.OVERCOMMIT_RATIO
    if overcommitted and verdict.code not in ("shared_pool", "both"):
        # Whatever else there is, and though nobody has died of it yet: the pool's shape must be mended.
        verdict = Verdict("shared_pool", "", found=False)
    return [_fields(each, server.kv_cache_bytes) for each in advice_for(story, verdict)]


def _story(server: ServerSnapshot) -> ServerStory:
    """What the model keeps of the log. Sizes of single requests are not among it; `plan` and `diagnose` have them."""
    refused: dict[int, int] = {}
    for incident in server.incidents:
        if incident.cause == "slot" and incident.request_tokens is not None:
            refused[incident.request_tokens] = refused.get(incident.request_tokens, 0) + 1
    return ServerStory(
        name=server.name,
        unit=server.unit,
        build=server.build,
        model=server.model,
        geometry=server.geometry,
        counters=server.counters,
        starts=0,
        first=None,
        last=None,
        incidents=server.incidents,
        totals=IncidentTotals(),
        requests_ended=0,
        request_sizes={},
        refused_sizes=refused,
        kv_bytes_per_token=server.kv_bytes_per_token,
    )


def _fields(advice: Advice, now: int | None) -> dict[str, object]:
    more = None if now is None or advice.kv_bytes is None else advice.kv_bytes - now
    return {
        "flags": list(advice.flags),
        "flags_any_build": list(advice.flags_any_build),
        "guaranteed_tokens": advice.guaranteed_tokens,
        "kv_bytes": advice.kv_bytes,
        "kv_bytes_more": more,
        "memory": None if more is None else f"{'+' if more > 0 else ''}{size(more)}" if more else "no more than now",
        "why": f"{advice.why[:1].upper()}{advice.why[1:]}.",
    }
