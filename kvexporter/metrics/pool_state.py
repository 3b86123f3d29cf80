"""Definitions: who holds the pool, and how its requests get on."""

from __future__ import annotations

from collections.abc import Callable

from kvexporter.metrics.definition import MetricSection, Points, by_slot, gauge, histogram, one
from kvexporter.snapshot import PoolSnapshot, ServerSnapshot

_FUSED = "the server's log and /slots together"
_STALE = "while unknown or too old (three polls missed)"


def of_pool(read: Callable[[PoolSnapshot], float | None]) -> Callable[[ServerSnapshot], Points]:
    """Read one number of the pool; None is absent."""
    return one(lambda server: None if server.pool is None else read(server.pool))


def _tokens(server: ServerSnapshot) -> Points:
    if server.pool is None:
        return ()
    held = (("processing", server.pool.processing_tokens), ("idle", server.pool.idle_tokens))
    return [((state,), tokens) for state, tokens in held if tokens is not None]


OCCUPANCY = MetricSection(
    "Occupancy",
    "Who holds how much of the pool now. Only slots at work can exhaust a pool: what idle slots hold is cache, which "
    "is given back when room is needed.",
    (
        gauge(
            "llama_slot_tokens",
            by_slot(lambda slot: slot.tokens),
            "Tokens that the slot holds now: the prompt as far as it is read, and the answer so far. On an idle slot "
            "it is cache.",
            unit="tokens",
            labels=("slot",),
            source=_FUSED,
            absent=_STALE,
        ),
        gauge(
            "llama_slot_processing",
            by_slot(lambda slot: int(slot.processing)),
            "1 while the slot works on a request, 0 while it is idle.",
            unit="boolean",
            labels=("slot",),
            source=_FUSED,
            absent=_STALE,
        ),
        gauge(
            "llama_kv_pool_tokens",
            _tokens,
            "Tokens held in the pool by slots that are at work (processing) and as cache of idle slots (idle). "
            "Requests with several answers share their prompt, so the sum can be more than the cells in use.",
            unit="tokens",
            labels=("state",),
            source="sums of llama_slot_tokens",
            absent=_STALE,
        ),
        gauge(
            "llama_kv_pool_fill_ratio",
            of_pool(lambda pool: pool.fill_ratio),
            "Tokens of slots at work by the pool's capacity: what cannot be given back. When a shared pool reaches 1, "
            "all its running requests fail.",
            unit="ratio",
            source="llama_kv_pool_tokens and the geometry",
            absent="while one of them is unknown",
        ),
        gauge(
            "llama_kv_pool_resident_ratio",
            of_pool(lambda pool: pool.resident_ratio),
            "Tokens of all slots, the idle ones' cache included, by the pool's capacity. Near 1 is normal on a busy "
            "server.",
            unit="ratio",
            source="llama_kv_pool_tokens and the geometry",
            absent="while one of them is unknown",
        ),
        gauge(
            "llama_kv_pool_fill_peak_ratio",
            of_pool(lambda pool: pool.fill_peak_ratio),
            "Highest llama_kv_pool_fill_ratio of the last 60 seconds, so that scrapes up to a minute apart miss no "
            "peak. Scrapes do not reset it.",
            unit="ratio",
            source="llama_kv_pool_fill_ratio",
            absent="while that was unknown for 60 seconds",
        ),
        histogram(
            "llama_kv_pool_fill_seconds",
            lambda server: server.fill_seconds,
            "Seconds spent at each fill of the pool: one observation of llama_kv_pool_fill_ratio for each second in "
            "which it was known. Started seconds are not counted.",
            unit="seconds by ratio",
            source="llama_kv_pool_fill_ratio",
            absent="while the fill was never known",
        ),
    ),
)

PROGRESS = MetricSection(
    "Progress",
    "Requests that take long, and requests that no longer get on.",
    (
        gauge(
            "llama_slot_task_age_seconds",
            by_slot(lambda slot: slot.task_age),
            "Time since the slot began with the request that it works on.",
            unit="seconds",
            labels=("slot",),
            source=_FUSED,
            absent="on idle slots",
        ),
        gauge(
            "llama_slot_stalled_seconds",
            by_slot(lambda slot: slot.stalled),
            "Time since anything of the slot's request last changed: its task, its tokens or its answer. It grows on a "
            "hung server and on an abandoned request, not on a long prompt that is being read.",
            unit="seconds",
            labels=("slot",),
            source=_FUSED,
            absent="on idle slots",
        ),
    ),
)
