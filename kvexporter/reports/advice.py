"""What to change so that it does not happen again, cheapest first, with the exact flags. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvexporter.diagnosing.logbook import ServerStory
from kvexporter.llama.kv_types import bytes_per_element
from kvexporter.reports.verdict import Verdict, own_deaths
from kvexporter.sizing import Configuration, Option, RequestSizeFacts, SizingFacts, configurations

MOST = 6
"""Ways that are proposed at the server."""

GROWTH = 2
"""Where sessions outgrew their window by nobody knows how much, so many windows are taken for enough."""
_TYPE = "f16"
"""Of a cache of which no type is told: every build's default."""

Configure = Callable[[SizingFacts, RequestSizeFacts], tuple[Configuration, ...]]


@dataclass(frozen=True, slots=True)
class Advice:
    """One way to mend it."""

    flags: tuple[str, ...]
    """For llama-server; none where only the clients are to be told something."""
    guaranteed_tokens: int | None
    """What each slot is then sure of: the window to tell each client."""
    kv_bytes: int | None
    why: str
    flags_any_build: tuple[str, ...] = ()
    """The same for builds without one of these flags; none where `flags` do for all."""


def advice_for(story: ServerStory, verdict: Verdict, configure: Configure = configurations) -> tuple[Advice, ...]:
    """Give the ways that mend what the verdict found, by what they cost; none where requests did not suffer."""
    slots = story.geometry.slots
    if verdict.code not in ("one_oversized_session", "shared_pool", "both") or not slots:
        return ()
    sizes = request_size_facts(story)
    if story.geometry.slot_context is not None and outgrown(story):
        sizes = replace(sizes, largest=max(GROWTH * story.geometry.slot_context, sizes.largest or 0))
    found = []
    guaranteed, overcommit = story.geometry.guaranteed, story.geometry.overcommit_ratio
    overcommitted = overcommit is not None and overcommit > 1
    if guaranteed is not None and (overcommitted or own_deaths(story).incidents or outgrown(story)):
        found.append(_tell_clients(story, guaranteed, sizes))
    sound = [
        each for each in configure(_facts(story, slots), sizes) if each.option != "as_is" and not each.overcommitted
    ]
    needed = sizes.largest if verdict.code == "one_oversized_session" else sizes.p95
    enough = [each for each in sound if needed is None or each.guaranteed >= needed]
    cheapest: dict[Option, Configuration] = {}
    for each in sorted(enough or sound, key=_cost):
        cheapest.setdefault(each.option, each)
    ways = list(cheapest.values())[:MOST]
    found += [Advice(way.flags, way.guaranteed, way.kv_bytes, way.why, way.flags_any_build) for way in ways]
    return tuple(found)


def request_size_facts(story: ServerStory) -> RequestSizeFacts:
    """The measured sizes of requests, those that were refused for their size included."""
    sizes = dict(story.request_sizes)
    for size, number in story.refused_sizes.items():
        sizes[size] = sizes.get(size, 0) + number
    every = tuple(size for size in sorted(sizes) for _ in range(sizes[size]))
    return RequestSizeFacts(every, percentile(every, 50), percentile(every, 95), every[-1] if every else None)


def outgrown(story: ServerStory) -> bool:
    """Sessions have reached their slot's window, and how large they would have become is not known."""
    counts = story.counters
    refused = counts.incidents.get("slot", 0) > sum(story.refused_sizes.values())
    return bool(counts.answers_truncated or counts.context_shifts or refused)


def percentile(ordered: tuple[int, ...], percent: int) -> int | None:
    """The smallest of the rising values that at least so many percent do not exceed; None of no values."""
    if not ordered:
        return None
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def _facts(story: ServerStory, slots: int) -> SizingFacts:
    geometry = story.geometry
    return SizingFacts(
        slots=slots,
        slot_context=geometry.slot_context,
        capacity=geometry.capacity,
        shared=geometry.shared,
        context_train=story.context_train,
        kv_bytes_per_token=story.kv_bytes_per_token,
        cache_type_k=story.cache_type_k,
        cache_type_v=story.cache_type_v,
    )


def _tell_clients(story: ServerStory, guaranteed: int, sizes: RequestSizeFacts) -> Advice:
    per_token, capacity = story.kv_bytes_per_token, story.geometry.capacity
    today = round(per_token * capacity) if per_token is not None and capacity is not None else None
    why = f"change nothing at the server, and tell each client a window of {guaranteed:,} tokens"
    fitting = sizes.fitting(guaranteed)
    if fitting is not None and not outgrown(story):
        why += f": {fitting:.0%} of the requests here would have fitted"
    return Advice((), guaranteed, today, why)


def _cost(each: Configuration) -> tuple[float, bool, int]:
    """Memory first, then waiting in a queue; of equals, the larger window is the better bargain."""
    memory = (
        each.kv_bytes
        if each.kv_bytes is not None
        else each.pool * float(bytes_per_element(each.cache_type or _TYPE) or 0)
    )
    return (memory, each.option == "queue", -each.guaranteed)
