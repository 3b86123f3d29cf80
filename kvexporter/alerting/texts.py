"""The labels and annotations of an alert: the rules' own, with the snapshot's numbers in place of queries. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kvexporter.alerting.conditions import Held
from kvexporter.metrics.exposition import clipped
from kvexporter.rules.links import dashboard_url, runbook_url
from kvexporter.rules.thresholds import INCIDENT_WINDOW
from kvexporter.rules.words import NUMBERS, shown, told
from kvexporter.snapshot import Cause, Incident, ServerSnapshot


def alert_labels(held: Held, server: ServerSnapshot, common: Mapping[str, str]) -> dict[str, str]:
    """Give the alert's labels. `common` are put on every alert: job, instance and what else Prometheus adds."""
    return {
        **common,
        "alertname": held.rule.name,
        "server": clipped(server.name),
        **held.rule.rule_labels,
    }


def alert_annotations(
    held: Held, server: ServerSnapshot, own: Mapping[str, str], at: float, host: str
) -> dict[str, str]:
    """Give the alert's annotations; `own` are its labels, `host` is said where they name no instance."""
    told_labels = {"instance": host, **own}
    told_numbers = {name: _shown(name, value) for name, value in numbers(server, held.incident, at).items()}
    values = {**told_labels, **told_numbers}
    return {
        "summary": told((held.rule.summary,), values),
        "description": told(held.rule.description, values),
        "runbook_url": runbook_url(held.rule.name),
        "dashboard_url": dashboard_url(held.rule.dashboard, dict(own)),
    }


def numbers(server: ServerSnapshot, incident: Incident | None, at: float) -> dict[str, float]:
    """Give the numbers that the texts may name, by placeholder; what is unknown is left out."""
    pool, shape = server.pool, server.geometry
    working = [(slot.tokens, slot.id) for slot in server.slots if slot.processing and slot.tokens is not None]
    biggest = max(working, default=None)
    found: dict[str, float | None] = {
        "fill": pool.fill_ratio if pool is not None else None,
        "peak": pool.fill_peak_ratio if pool is not None else None,
        "committed": pool.committed_ratio if pool is not None else None,
        "demand": pool.demand_ratio if pool is not None else None,
        "left": pool.seconds_to_full if pool is not None else None,
        "running": sum(slot.processing for slot in server.slots) if server.slots else None,
        "biggest_slot": biggest[1] if biggest is not None else None,
        "biggest_tokens": biggest[0] if biggest is not None else None,
        "deferred": server.requests_deferred,
        "capacity": shape.capacity,
        "slots": shape.slots,
        "window": shape.slot_context,
        "promised": shape.promised,
        "guaranteed": shape.guaranteed,
        "died": _failed(server, "pool", at),
        "too_long": _failed(server, "slot", at),
        **_culprit(incident),
    }
    return {name: value for name, value in found.items() if value is not None}


def _culprit(incident: Incident | None) -> dict[str, float | None]:
    if incident is None:
        return {}
    tokens = {slot.slot: slot.tokens for slot in incident.slots}
    biggest = incident.biggest_slot
    return {
        "culprit_slot": biggest,
        "culprit_tokens": tokens.get(biggest) if biggest is not None else None,
        "excess": incident.excess_tokens,
    }


def _failed(server: ServerSnapshot, cause: Cause, at: float) -> int:
    """Requests that died of this cause within the rules' window, as far back as incidents are kept."""
    incidents = [*server.incidents, *([server.open_incident] if server.open_incident is not None else [])]
    return sum(
        incident.requests_failed
        for incident in incidents
        if incident.cause == cause and abs(at - incident.ended) < INCIDENT_WINDOW
    )


def _shown(name: str, value: float) -> str:
    number = NUMBERS.get(name)
    return shown(value, "count" if number is None or number.style == "label" else number.style)
