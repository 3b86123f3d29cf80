"""What `kvexporter plan` found out, and which configuration comes first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvexporter.facts import GpuReport, HostMemory
from kvexporter.reports.quantities import size_words
from kvexporter.sizing import Configuration, RequestSizeFacts, SizingFacts, configurations


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that the views show."""

    server: str | None
    """None: planned from numbers alone."""
    facts: SizingFacts
    sizes: RequestSizeFacts
    configurations: tuple[Configuration, ...]
    origins: tuple[tuple[str, str], ...]
    """What is known and where from, by subject, in words."""
    notes: tuple[str, ...] = ()
    """What to mind."""

    @property
    def slots(self) -> int:
        """Slots that are planned for."""
        return self.facts.slots if self.facts.planned_slots is None else self.facts.planned_slots

    @property
    def first(self) -> int | None:
        """Index of the first configuration that is sure for the 95th percentile and fits into memory.

        They are ordered by what they give up. None where no size or no memory is known, or none is enough.
        """
        p95 = self.sizes.p95
        if p95 is None:
            return None
        for index, each in enumerate(self.configurations):
            if not each.overcommitted and each.guaranteed >= p95 and (each.memory_left or 0) >= 0:
                return index
        return None

    @property
    def why_none(self) -> str | None:
        """Why no configuration is enough, and what to do, in sentences; None where one is."""
        if self.first is not None:
            return None
        p95, trained = self.sizes.p95, self.facts.context_train
        if p95 is None:
            return (
                "None is marked as enough: how large the requests get is not known. Let the exporter measure them, or "
                "say --p95."
            )
        if trained is not None and p95 > trained:
            return (
                f"No configuration can hold these requests: 95 % of them hold up to {p95:,} tokens, and the model was "
                f"trained on no more than {trained:,}, above which llama-server opens no window. Have the clients keep "
                f"to no more than {trained:,} tokens, prompt and answer together, by compacting their histories "
                "earlier (--clients shows the settings), or take a model that was trained on more."
            )
        return self._too_little_memory(p95)

    def _too_little_memory(self, p95: int) -> str:
        sound = [each for each in self.configurations if not each.overcommitted and each.guaranteed >= p95]
        needed = [each.kv_bytes for each in sound if each.kv_bytes is not None]
        if not needed or self.facts.memory_bytes is None:
            return f"No configuration is sure of {p95:,} tokens, which 95 % of the requests need: plan for fewer slots."
        return (
            f"No configuration is enough: to be sure of {p95:,} tokens, which 95 % of the requests need, the cache "
            f"takes {size_words(min(needed))} at least, and there are {size_words(self.facts.memory_bytes)} for it. "
            "Have the clients keep to less, take a smaller model, or give the cache more memory."
        )


def make_plan(
    server: str | None,
    facts: SizingFacts,
    sizes: RequestSizeFacts,
    origins: Sequence[tuple[str, str]],
    notes: Sequence[str] = (),
) -> Plan:
    """Put the configurations beside what they are made of."""
    found = configurations(facts, sizes)
    more = list(notes)
    k, v = facts.cache_type_k, facts.cache_type_v
    if facts.kv_bytes_per_token is not None and (k is None or v is None):
        more.append("the cache's types today are not known, so other types' cost is not: say --cache-type")
    elif k != v and facts.kv_bytes_per_token is not None:
        more.append(f"K is {k} and V {v}: for other types' cost they are taken to be equally wide")
    if facts.memory_bytes is None:
        more.append("the memory there is is not known: say --memory")
    if facts.context_train is None:
        more.append("the model's training context is not known, and no window may be above it: say --training-context")
    if any(each.flags_any_build for each in found):
        more.append(
            "builds without --kv-unified-per-slot: leave it and -kvu away; each slot then has a buffer of its own, of "
            "the same window, and the memory is the same"
        )
    if any("-fa" in each.flags for each in found):
        more.append("builds whose -fa takes no value (b5541): -fa instead of -fa on")
    return Plan(server, facts, sizes, found, tuple(origins), tuple(more))


@dataclass(frozen=True, slots=True)
class Free:
    """Memory that a KV cache can get beside what is there."""

    size: int
    """Bytes."""
    where: str


def free_memory(
    report: GpuReport, host: HostMemory, held: frozenset[str] | None, *, on_host: bool = False
) -> Free | None:
    """Where a server's cache is and what is free there; None if that is not known.

    `held`: indexes of the GPUs on which the server's process holds memory; None without a server: all GPUs count.
    `on_host`: its cache is kept off the GPUs (-nkvo).
    """
    if report.unified_available is not None:
        return Free(report.unified_available, "free in the memory that GPU and CPU share")
    own = [
        gpu for gpu in report.gpus if gpu.unified is False and not gpu.sliced and (held is None or gpu.index in held)
    ]
    free = [
        gpu.memory_total - gpu.memory_used
        for gpu in own
        if gpu.memory_total is not None and gpu.memory_used is not None
    ]
    if own and not on_host:
        names = ", ".join(gpu.index for gpu in own)
        return Free(sum(free), f"free on GPU {names}") if len(free) == len(own) else None
    return None if host.available is None else Free(host.available, "available in the host's memory")


def with_memory(facts: SizingFacts, free: Free | None) -> tuple[SizingFacts, str | None]:
    """The facts with the memory that a cache may take: what is free and what today's takes; and that in words."""
    if free is None:
        return facts, None
    today = 0
    if facts.kv_bytes_per_token is not None and facts.capacity is not None:
        today = round(facts.kv_bytes_per_token * facts.capacity)
    return replace(facts, memory_bytes=free.size + today), free.where
