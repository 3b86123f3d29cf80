"""Definitions: what the running requests will need, and when the pool will be full."""

from __future__ import annotations

from kvexporter.metrics.definition import MetricSection, gauge
from kvexporter.metrics.pool_state import of_pool

_FROM = "the slots' requests, from the server's log and /slots together"
_UNKNOWN = "while the tokens of slots at work are unknown"

FORECAST = MetricSection(
    "Forecast",
    "What the requests that run now will need, and when the pool will be full if it goes on like this; "
    "docs/forecast.md says how each number is made.",
    (
        gauge(
            "llama_kv_pool_committed_tokens",
            of_pool(lambda pool: pool.committed_tokens),
            "Tokens that the running requests will hold once their prompts are read, with their answers as long as "
            "they are now; a slot at most its context. A prompt's size is the one logged, else the middle of what its "
            "rounded progress allows, else estimated by what it has in common with its slot's cache, else what is read "
            "of it.",
            unit="tokens",
            source=_FROM,
            absent=_UNKNOWN,
        ),
        gauge(
            "llama_kv_pool_committed_ratio",
            of_pool(lambda pool: pool.committed_ratio),
            "llama_kv_pool_committed_tokens by the pool's capacity. From 1 on the pool will be full unless a request "
            "ends before.",
            unit="ratio",
            source="llama_kv_pool_committed_tokens and the geometry",
            absent="while one of them is unknown",
        ),
        gauge(
            "llama_kv_pool_demand_tokens",
            of_pool(lambda pool: pool.demand_tokens),
            "Tokens that the running requests will hold once their prompts are read and, where they set a limit, their "
            "answers written up to it; a slot at most its context. The limits are known from /slots alone.",
            unit="tokens",
            source=_FROM,
            absent=_UNKNOWN,
        ),
        gauge(
            "llama_kv_pool_demand_ratio",
            of_pool(lambda pool: pool.demand_ratio),
            "llama_kv_pool_demand_tokens by the pool's capacity. Above 1 the requests may need more than there is, but "
            "many answers end before their limit.",
            unit="ratio",
            source="llama_kv_pool_demand_tokens and the geometry",
            absent="while one of them is unknown",
        ),
        gauge(
            "llama_kv_pool_seconds_to_full",
            of_pool(lambda pool: pool.seconds_to_full),
            "Seconds until the pool is full if it goes on like this: by the speeds at which the running requests' "
            "prompts are read and their answers written, or by how its last peaks rose, whichever is sooner.",
            unit="seconds",
            source="the fill of the last minutes, from the server's log and /slots",
            absent="while it is not filling, too little was seen, or the pool cannot overflow",
        ),
    ),
)
