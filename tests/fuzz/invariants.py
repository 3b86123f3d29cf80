"""What must hold of a server's model and of what is shown of it, whatever came in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from kvexporter.metrics.exposition import LABEL_LIMIT, exposition
from kvexporter.server import Server
from kvexporter.snapshot import ExporterSnapshot, HistogramSnapshot, ServerSnapshot

MOST_TOKENS = 2**40
"""No cache and no request has more."""

MOST_ELEMENTS = 120_000
"""Of one model: 1024 slots of 16 fields each, in the pool, the ledger and the kept incidents."""


def counts(snapshot: ServerSnapshot) -> dict[Any, float]:
    """Every number of a server that may only grow."""
    found: dict[Any, float] = {}
    for field in fields(snapshot.counters):
        value = getattr(snapshot.counters, field.name)
        if isinstance(value, Mapping):
            found.update({(field.name, key): count for key, count in value.items()})
        elif value is not None:
            found[field.name] = value
    for name in ("request_tokens", "request_prompt_tokens", "prompt_speed", "generation_speed", "fill_seconds"):
        histogram: HistogramSnapshot | None = getattr(snapshot, name)
        if histogram is not None:
            found.update({(name, bound): count for bound, count in histogram.buckets})
            found[name, "sum"] = histogram.sum
    found.update({("poll_failures", key): count for key, count in snapshot.poll_failures.items()})
    return found


def assert_only_grew(before: Mapping[Any, float], after: Mapping[Any, float]) -> None:
    for key, count in before.items():
        assert after.get(key, -1) >= count, f"{key} went from {count} to {after.get(key)}"


def assert_sane(snapshot: ServerSnapshot) -> None:
    """No number that nobody could believe."""
    for key, count in counts(snapshot).items():
        assert math.isfinite(count), (key, count)
        assert count >= 0, (key, count)
    for slot in snapshot.slots:
        for value in (slot.tokens, slot.prompt_tokens, slot.remaining, slot.task_age, slot.stalled):
            assert value is None or 0 <= value <= 2 * MOST_TOKENS, slot
    pool = snapshot.pool
    if pool is not None:
        assert pool.processing_tokens >= 0
        for ratio in (pool.fill_ratio, pool.resident_ratio, pool.fill_peak_ratio):
            assert ratio is None or (math.isfinite(ratio) and ratio >= 0), pool
    geometry = snapshot.geometry
    for number in (geometry.slots, geometry.slot_context, geometry.capacity, geometry.guaranteed):
        assert number is None or 0 <= number <= MOST_TOKENS * 10_000, geometry
    for ratio in (geometry.overcommit_ratio, snapshot.kv_bytes_per_token, snapshot.kv_cache_bytes):
        assert ratio is None or (math.isfinite(ratio) and ratio >= 0), snapshot
    if snapshot.state == "down":
        assert not snapshot.slots
        assert snapshot.pool is None
        assert snapshot.up is not True


def parts(value: Any) -> list[Any]:
    """The values of an object's fields, whatever kind of class it is of."""
    names: Iterable[str]
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
    else:
        slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
        names = {*getattr(value, "__struct_fields__", ()), *slots, *getattr(value, "__dict__", {})}
    return [getattr(value, name) for name in names if hasattr(value, name)]


def elements(value: Any, seen: set[int] | None = None) -> int:
    """How many objects a value is made of, each counted once; text counts by its length."""
    seen = set() if seen is None else seen
    if id(value) in seen or value is None or isinstance(value, bool | int | float | Enum | type) or callable(value):
        return 1
    seen.add(id(value))
    if isinstance(value, str | bytes):
        return 1 + len(value) // 100
    inner: Iterable[Any]
    if isinstance(value, Mapping):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, Iterable):
        inner = value
    else:
        inner = parts(value)
    return 1 + sum(elements(part, seen) for part in inner)


def assert_bounded(server: Server) -> None:
    size = elements(server)
    assert size <= MOST_ELEMENTS, f"{size} elements"


def assert_renderable(snapshots: Iterable[ServerSnapshot], at: float) -> str:
    """Both formats can be read by prometheus_client, tell the same and keep the bounds of labels."""
    whole = ExporterSnapshot(at=at, servers=tuple(snapshots), journal_lines={"matched": 1})
    text = exposition(whole)
    plain = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_families(text)
        for sample in family.samples
    }
    open_form = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in openmetrics_families(exposition(whole, "openmetrics"))  # type: ignore[no-untyped-call]
        for sample in family.samples
    }
    assert {key: value for key, value in plain.items() if not math.isnan(value)} == open_form
    series = [line for line in text.split("\n") if line and not line.startswith("#")]
    assert len(plain) == len(series), "a series stands there twice"
    for _, *labels in plain:
        for name, value in labels:
            assert len(value) <= LABEL_LIMIT, (name, value)
    return text
