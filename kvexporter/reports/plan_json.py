"""A plan as JSON, for programs. Unknown is null; sizes are in bytes, windows and pools in tokens. Pure."""

from __future__ import annotations

import json
from typing import Any

from kvexporter.reports.plan import Plan
from kvexporter.reports.plan_clients import client_settings
from kvexporter.sizing import Configuration


def plan_json(plan: Plan, *, clients: bool = False) -> str:
    """One object, as docs/plan.md describes it."""
    facts, sizes = plan.facts, plan.sizes
    found: dict[str, Any] = {
        "server": plan.server,
        "slots": plan.slots,
        "today": {
            "slots": facts.slots if facts.slot_context is not None else None,
            "slot_context_tokens": facts.slot_context,
            "pool_capacity_tokens": facts.capacity,
            "pool_shared": facts.shared,
        },
        "request_tokens": {
            "count": len(sizes.sizes) if sizes.sizes else None,
            "p50": sizes.p50,
            "p95": sizes.p95,
            "max": sizes.largest,
        },
        "kv_bytes_per_token": facts.kv_bytes_per_token,
        "cache_type_k": facts.cache_type_k,
        "cache_type_v": facts.cache_type_v,
        "training_context_tokens": facts.context_train,
        "memory_bytes": facts.memory_bytes,
        "configurations": [_configuration(each) for each in plan.configurations],
        "first_enough": plan.first,
        "why_none_is_enough": plan.why_none,
        "origins": dict(plan.origins),
        "notes": list(plan.notes),
    }
    if clients:
        found["client_window_tokens"] = client_settings(plan).window
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def _configuration(each: Configuration) -> dict[str, Any]:
    return {
        "option": each.option,
        "title": each.title,
        "flags": list(each.flags),
        "flags_any_build": list(each.flags_any_build or each.flags),
        "slots": each.slots,
        "window_tokens": each.window,
        "guaranteed_tokens": each.guaranteed,
        "pool_tokens": each.pool,
        "overcommitted": each.overcommitted,
        "cache_type": each.cache_type,
        "fitting_ratio": each.fits,
        "kv_bytes": each.kv_bytes,
        "memory_left_bytes": each.memory_left,
        "why": each.why,
    }
