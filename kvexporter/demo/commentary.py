"""What the terminal says while the stories unfold, taken from the exporter's own /metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from kvexporter.incident_words import counted

BAR_WIDTH = 24


@dataclass(frozen=True)
class Reading:
    """One server's values of one scrape that the commentary needs; None where the exporter shows none."""

    up: bool = False
    state: str | None = None
    capacity: int | None = None
    overcommit: float | None = None
    guaranteed: int | None = None
    fill: float | None = None
    peak: float | None = None
    committed: float | None = None
    demand: float | None = None
    seconds_to_full: float | None = None
    slots: dict[int, int] = field(default_factory=dict)
    working: int | None = None
    incidents: int = 0
    requests_failed: int = 0
    incident_slots: dict[int, int] = field(default_factory=dict)
    incident_at: float | None = None
    excess: int | None = None
    restarts: int = 0
    exits: dict[str, int] = field(default_factory=dict)
    """Exit status → times."""


Samples = dict[str, list[tuple[dict[str, str], float]]]


def read_exposition(text: str) -> dict[str, Reading]:
    """Take the values out of a Prometheus text exposition, by server."""
    servers: dict[str, Samples] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if "server" in sample.labels:
                samples = servers.setdefault(sample.labels["server"], {})
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return {server: _reading(samples) for server, samples in servers.items()}


def _reading(found: Samples) -> Reading:
    def one(name: str, **labels: str) -> float | None:
        return next((value for have, value in found.get(name, []) if labels.items() <= have.items()), None)

    def whole(name: str, **labels: str) -> int | None:
        value = one(name, **labels)
        return None if value is None else int(value)

    def by(label: str, name: str) -> dict[str, int]:
        return {labels[label]: int(value) for labels, value in found.get(name, [])}

    def by_slot(name: str) -> dict[int, int]:
        return {int(slot): value for slot, value in by("slot", name).items()}

    return Reading(
        up=one("llama_up") == 1,
        state=next((labels["state"] for labels, value in found.get("llama_server_state", []) if value == 1), None),
        capacity=whole("llama_kv_pool_capacity_tokens"),
        overcommit=one("llama_kv_pool_overcommit_ratio"),
        guaranteed=whole("llama_slot_guaranteed_tokens"),
        fill=one("llama_kv_pool_fill_ratio"),
        peak=one("llama_kv_pool_fill_peak_ratio"),
        committed=one("llama_kv_pool_committed_ratio"),
        demand=one("llama_kv_pool_demand_ratio"),
        seconds_to_full=one("llama_kv_pool_seconds_to_full"),
        slots=by_slot("llama_slot_tokens"),
        working=whole("llama_requests_processing"),
        incidents=whole("llama_context_exceeded_total", cause="pool") or 0,
        requests_failed=whole("llama_context_exceeded_requests_total", cause="pool") or 0,
        incident_slots=by_slot("llama_last_incident_slot_tokens"),
        incident_at=one("llama_last_incident_timestamp_seconds"),
        excess=whole("llama_last_incident_excess_tokens"),
        restarts=whole("llama_unit_restarts_total") or 0,
        exits=by("code", "llama_unit_exits_total"),
    )


def geometry_line(reading: Reading) -> str | None:
    """What the pool is, once it is known."""
    if reading.capacity is None or reading.overcommit is None or reading.guaranteed is None:
        return None
    return (
        f"The pool has {reading.capacity:,} tokens and {reading.overcommit:g} times as many are promised: "
        f"each slot is sure of {reading.guaranteed:,} only."
    )


def pool_line(seconds: float, reading: Reading) -> str:
    """How full the pool is and who holds it."""
    if not reading.up or reading.fill is None:
        return f"{seconds:4.0f} s  {reading.state or 'not known yet'}"
    full = min(BAR_WIDTH, round(reading.fill * BAR_WIDTH))
    slots = "  ".join(f"{slot}: {tokens:>7,}" for slot, tokens in sorted(reading.slots.items()))
    return f"{seconds:4.0f} s  {reading.fill:6.1%} [{'#' * full}{'.' * (BAR_WIDTH - full)}]  {slots}"


def others_line(readings: Mapping[str, Reading]) -> str:
    """How the other servers are, in one line."""
    return "        " + " | ".join(f"{server}: {_in_short(reading)}" for server, reading in readings.items())


def _in_short(reading: Reading) -> str:
    if reading.exits:
        times = ", ".join(f"exit {code} {counted(count, 'time')}" for code, count in reading.exits.items())
        return f"{reading.state or 'not known yet'}, {times}"
    if reading.state != "ready" or reading.fill is None:
        return reading.state or "not known yet"
    if not reading.working:
        return "ready, nothing to do"
    return f"{reading.fill:.0%} full, {counted(reading.working, 'request')} running"


def incident_table(reading: Reading, failed_before: int = 0) -> str:
    """The last incident, as the exporter's metrics tell it; `failed_before` requests had died in earlier ones."""
    rows = [("slot", "tokens", "share of the pool")]
    total = sum(reading.incident_slots.values())
    for name, tokens in [*((str(slot), held) for slot, held in sorted(reading.incident_slots.items())), ("sum", total)]:
        rows.append((name, f"{tokens:,}", f"{tokens / reading.capacity:.1%}" if reading.capacity else "-"))
    table = "\n".join(f"    {name:>4}  {tokens:>9}  {share:>17}" for name, tokens, share in rows)
    lines = [f"The pool overflowed: {reading.requests_failed - failed_before} requests died with HTTP 500.", table]
    if reading.excess is not None and reading.incident_slots:
        biggest = max(reading.incident_slots, key=reading.incident_slots.__getitem__)
        lines.append(f"    {reading.excess:,} tokens too many. Slot {biggest} held most; everybody got the error.")
    return "\n".join(lines)
