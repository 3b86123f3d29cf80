"""Puts together what was said on the command line, what a log tells and what a running server tells. Pure.

What is said wins over what is measured, and what is measured over what would follow from options.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvexporter.facts import GpuReport, HostMemory
from kvexporter.geometry import merge
from kvexporter.kv_bytes import DEFAULT_TYPE
from kvexporter.llama.kv_types import bytes_per_element
from kvexporter.pool_geometry import Geometry
from kvexporter.reports.plan import Plan, free_memory, make_plan, with_memory
from kvexporter.reports.plan_running import ModelFile, Running
from kvexporter.reports.plan_told import Told
from kvexporter.reports.quantities import size_words
from kvexporter.request_sizes import given_size_facts
from kvexporter.sizing import RequestSizeFacts, SizingFacts


class PlanError(Exception):
    """Too little is known to plan; the text says what is missing and how to say it."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the command line says; None: not said."""

    p95: int | None = None
    largest: int | None = None
    slots: int | None = None
    kv_bytes_per_token: float | None = None
    cache_type: str | None = None
    training_context: int | None = None
    memory: int | None = None
    model: ModelFile | None = None
    """The header of the model's file that was named."""


@dataclass(frozen=True, slots=True)
class _Cache:
    """Bytes per token, with the types that they are for, and where they come from."""

    per_token: float | None
    types: tuple[str, str] | None
    origin: str


def plan_of(
    said: Said, told: Told | None, running: Running | None, gpus: GpuReport | None, host: HostMemory | None
) -> Plan:
    """Make the plan. `gpus` and `host` are None where this host's memory says nothing. Raises PlanError."""
    geometry = merge(told.geometry if told is not None else None, running.geometry if running is not None else None)
    cache = _cache(said, told, running)
    slots = said.slots or geometry.slots
    if not slots:
        raise PlanError("the number of slots is not known: say it with --slots")
    sizes = _sizes(said, told)
    if sizes.p95 is None and geometry.slot_context is None:
        raise PlanError("neither requests' sizes nor the window are known: say --p95")
    facts = SizingFacts(
        slots=geometry.slots or slots,
        slot_context=geometry.slot_context,
        capacity=geometry.capacity,
        shared=geometry.shared,
        context_train=_training(said, told, running),
        kv_bytes_per_token=cache.per_token,
        cache_type_k=cache.types[0] if cache.types is not None else None,
        cache_type_v=cache.types[1] if cache.types is not None else None,
        memory_bytes=said.memory,
        planned_slots=slots if geometry.slots not in (None, slots) else None,
    )
    where = "as said (--memory)"
    if said.memory is None and gpus is not None and host is not None:
        held, on_host = (running.gpus_held, running.on_host) if running is not None else (None, False)
        facts, found = with_memory(facts, free_memory(gpus, host, held, on_host=on_host))
        where = f"{found} now, with what today's cache takes" if facts.capacity else f"{found} now"
    name = told.name if told is not None else running.name if running is not None else None
    origins = [*_origins(said, told, geometry, sizes, slots), *_memory_origins(facts, cache, where)]
    made = make_plan(name, facts, sizes, origins, tuple(_notes(said, told, running, cache)))
    if not made.configurations:
        raise PlanError(f"{slots:,} slots for requests of that size need more than the largest -c there is")
    return made


def _sizes(said: Said, told: Told | None) -> RequestSizeFacts:
    if said.p95 is not None:
        return given_size_facts(said.p95, said.largest)
    return told.sizes if told is not None else RequestSizeFacts()


def _training(said: Said, told: Told | None, running: Running | None) -> int | None:
    return (
        said.training_context
        or (said.model.context_train if said.model is not None else None)
        or (told.context_train if told is not None else None)
        or (running.model.context_train if running is not None else None)
    )


def _cache(said: Said, told: Told | None, running: Running | None) -> _Cache:
    types = running.types if running is not None else None
    if types is None and told is not None and told.cache_type_k is not None and told.cache_type_v is not None:
        types = told.cache_type_k, told.cache_type_v
    given = (said.cache_type, said.cache_type) if said.cache_type is not None else None
    if said.kv_bytes_per_token is not None:
        return _Cache(said.kv_bytes_per_token, given or types or (DEFAULT_TYPE, DEFAULT_TYPE), "--kv-bytes-per-token")
    if said.model is not None and said.model.shape is not None:
        types = given or types or (DEFAULT_TYPE, DEFAULT_TYPE)
        each = said.model.shape.bytes_per_token(*types)
        return _Cache(float(each) if each is not None else None, types, "the model's file")
    if told is not None and told.kv_bytes_per_token is not None:
        return _Cache(told.kv_bytes_per_token, given or types, "the log's size line")
    types = given or types
    shape = running.model.shape if running is not None else None
    each = shape.bytes_per_token(*types) if shape is not None and types is not None else None
    return _Cache(float(each) if each is not None else None, types, "the running model's file")


def _origins(
    said: Said, told: Told | None, geometry: Geometry, sizes: RequestSizeFacts, slots: int
) -> Iterator[tuple[str, str]]:
    source = told.origin if told is not None else "the running server"
    if geometry.slots is not None and geometry.slot_context is not None:
        shared = {
            True: "shared",
            False: "one buffer each" if geometry.slots > 1 else "its own",
            None: "unknown how cut",
        }
        pool = "an unknown pool" if geometry.capacity is None else f"a pool of {geometry.capacity:,} tokens"
        plural = "s" if geometry.slots != 1 else ""
        cut = f"{geometry.slots} slot{plural} of up to {geometry.slot_context:,}"
        yield "today", f"{cut} in {pool} ({shared[geometry.shared]})"
    if slots != geometry.slots:
        yield "planned for", f"{slots} slot{'s' if slots != 1 else ''}"
    if sizes.p95 is not None:
        largest = f", largest {sizes.largest:,}" if sizes.largest is not None else ""
        half = f"half of them up to {sizes.p50:,}, " if sizes.p50 is not None else ""
        measured = f"{len(sizes.sizes):,} measured ({source})" if sizes.sizes else "as said (--p95)"
        yield "requests", f"{half}95 % up to {sizes.p95:,}{largest} tokens: {measured}"
    else:
        yield "requests", f"no sizes are known ({source})"


def _memory_origins(facts: SizingFacts, cache: _Cache, where: str) -> Iterator[tuple[str, str]]:
    if cache.per_token is not None:
        types = "/".join(dict.fromkeys(cache.types)) if cache.types is not None else "unknown types"
        yield "KV cache", f"{cache.per_token / 1024:.2f} KiB a token at {types} ({cache.origin})"
    if facts.context_train is not None:
        yield "trained on", f"{facts.context_train:,} tokens"
    if facts.memory_bytes is not None:
        yield "memory", f"{size_words(facts.memory_bytes)} for the cache: {where}"


def _notes(said: Said, told: Told | None, running: Running | None, cache: _Cache) -> Iterator[str]:
    model = said.model or (running.model if running is not None else None)
    if model is not None and model.problem is not None and cache.per_token is None:
        yield f"the cache's size is not computed: {model.problem}; say --kv-bytes-per-token"
    if model is not None and model.shape is not None and model.shape.windowed_layers:
        yield (
            f"{model.shape.windowed_layers} layers keep a sliding window only: their cache, which hardly grows, "
            "comes on top"
        )
    if told is not None and 0 < len(told.sizes.sizes) < 100 and said.p95 is None:
        yield f"{len(told.sizes.sizes)} requests are few: measure longer before relying on the 95th percentile"


def known_cache_type(name: str) -> str:
    """Read a cache type's name. ValueError says what was expected."""
    if bytes_per_element(name) is None:
        raise ValueError(f"expected a cache type such as f16, q8_0 or q4_0, found {name!r}")
    return name.lower()
