"""What the terminal says while the story unfolds, taken from the exporter's own /metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

BAR_WIDTH = 24


@dataclass(frozen=True)
class Reading:
    """The values of one scrape that the commentary needs; None where the exporter shows none."""

    up: bool
    state: str | None
    capacity: int | None
    overcommit: float | None
    guaranteed: int | None
    fill: float | None
    slots: dict[int, int] = field(default_factory=dict)
    incidents: int = 0
    requests_failed: int = 0
    incident_slots: dict[int, int] = field(default_factory=dict)
    excess: int | None = None


def read_exposition(text: str) -> Reading:
    """Take the values out of a Prometheus text exposition."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))

    def one(name: str, **labels: str) -> float | None:
        return next((value for have, value in found.get(name, []) if labels.items() <= have.items()), None)

    def whole(name: str, **labels: str) -> int | None:
        value = one(name, **labels)
        return None if value is None else int(value)

    def by_slot(name: str) -> dict[int, int]:
        return {int(labels["slot"]): int(value) for labels, value in found.get(name, [])}

    return Reading(
        up=one("llama_up") == 1,
        state=next((labels["state"] for labels, value in found.get("llama_server_state", []) if value == 1), None),
        capacity=whole("llama_kv_pool_capacity_tokens"),
        overcommit=one("llama_kv_pool_overcommit_ratio"),
        guaranteed=whole("llama_slot_guaranteed_tokens"),
        fill=one("llama_kv_pool_fill_ratio"),
        slots=by_slot("llama_slot_tokens"),
        incidents=whole("llama_context_exceeded_total", cause="pool") or 0,
        requests_failed=whole("llama_context_exceeded_requests_total", cause="pool") or 0,
        incident_slots=by_slot("llama_last_incident_slot_tokens"),
        excess=whole("llama_last_incident_excess_tokens"),
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
