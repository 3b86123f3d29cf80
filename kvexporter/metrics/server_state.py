"""Definitions: the server and the geometry of its KV cache."""

from __future__ import annotations

from typing import get_args

from kvexporter.metrics.definition import Metric, MetricSection, Points, gauge, one
from kvexporter.snapshot import ServerSnapshot, ServerState

_GEOMETRY = "the configuration, else the server's log, else its command line, else /props"

_KV_BYTES = "the size lines in the server's log, else the model file's header, the cache types and the capacity"
_NO_KV_BYTES = (
    "where the log has none and the header cannot be read or does not tell it (recurrent layers, compressed attention, "
    "layers of unknown kind), or the cache types may be in an environment that cannot be read; `kvexporter check` says "
    "why"
)


def _info(server: ServerSnapshot) -> Points:
    if server.model is None and server.build is None and server.unit is None:
        return ()
    return (((server.model or "", server.build or "", server.unit or ""), 1),)


def _state(server: ServerSnapshot) -> Points:
    if server.state is None:
        return ()
    return [((state,), int(state == server.state)) for state in get_args(ServerState)]


def _geometry_source(server: ServerSnapshot) -> Points:
    source = server.geometry.source
    return () if source is None else (((source,), 1),)


def _kv_bytes_source(server: ServerSnapshot) -> Points:
    return () if server.kv_bytes_source is None else (((server.kv_bytes_source,), 1),)


def _shared(server: ServerSnapshot) -> float | None:
    shared = server.geometry.shared
    return None if shared is None else int(shared)


SERVER = MetricSection(
    "Server",
    "One series per server; the label `server` is its name in the configuration, else its unit without `.service`, "
    "else host:port.",
    (
        gauge(
            "llama_up",
            one(lambda server: None if server.up is None else int(server.up)),
            "Whether the llama-server is running and answering: 1, or 0. A server that loads its model or sleeps is "
            "up.",
            unit="boolean",
            source="GET /health, else its process and its log",
            absent="until the first look at it",
        ),
        Metric(
            name="llama_server_info",
            kind="info",
            unit="",
            meaning="What is known of the server, as labels; the value is 1. An empty label is unknown. The build is "
            "what the server says, and some distributions' builds say nonsense.",
            source="the log, /props and the process's control group",
            absent="while nothing of it is known",
            labels=("server", "model", "build", "unit"),
            server=_info,
        ),
        gauge(
            "llama_server_state",
            _state,
            "What the server is doing: 1 for the state it is in, 0 for the others. sleeping: it has unloaded its model "
            "until the next request.",
            unit="boolean",
            labels=("state",),
            source="the log, GET /health, and is_sleeping of GET /props",
            absent="until the first look at it",
        ),
        gauge(
            "llama_requests_processing",
            one(lambda server: server.requests_processing),
            "Requests being worked on now.",
            unit="requests",
            source="the slots at work, else the server's own /metrics",
            absent="where neither is known, and while the server is down or loads its model",
        ),
        gauge(
            "llama_requests_deferred",
            one(lambda server: server.requests_deferred),
            "Requests that wait for a free slot.",
            unit="requests",
            source="the server's own /metrics, which needs its option --metrics",
            absent="without it, and while the server is idle, for it is not asked then",
        ),
    ),
)

GEOMETRY = MetricSection(
    "Geometry",
    "How the KV cache is cut. Known from the first lines of the server's log on; another start or a reload of the "
    "model replaces what was known.",
    (
        gauge(
            "llama_slots",
            one(lambda server: server.geometry.slots),
            "Slots of the server: requests it can work on at the same time.",
            unit="slots",
            source=_GEOMETRY,
            absent="while unknown",
        ),
        gauge(
            "llama_slot_context_tokens",
            one(lambda server: server.geometry.slot_context),
            "Most tokens that one slot may hold, prompt and answer together: the window that clients are told. In a "
            "shared pool it is an upper bound and not a guarantee.",
            unit="tokens",
            source=_GEOMETRY,
            absent="while unknown",
        ),
        gauge(
            "llama_kv_pool_capacity_tokens",
            one(lambda server: server.geometry.capacity),
            "Cells of the whole KV buffer, each with room for one token; the buffers of all slots together where each "
            "has its own.",
            unit="tokens",
            source=_GEOMETRY,
            absent="while unknown; /props alone does not tell it",
        ),
        gauge(
            "llama_kv_pool_shared",
            one(_shared),
            "1 if more than one slot draws from one buffer, so that one slot's request can starve the others; 0 if "
            "each slot has its own.",
            unit="boolean",
            source=_GEOMETRY,
            absent="while unknown; /props does not tell it",
        ),
        gauge(
            "llama_kv_pool_promised_tokens",
            one(lambda server: server.geometry.promised),
            "Tokens promised to all slots together: slots times the slot context.",
            unit="tokens",
            source=_GEOMETRY,
            absent="while one of the two is unknown",
        ),
        gauge(
            "llama_kv_pool_overcommit_ratio",
            one(lambda server: server.geometry.overcommit_ratio),
            "Tokens promised to all slots by the pool's capacity. At 1 or less the pool cannot run out; 4 means that "
            "four slots are each promised the whole pool.",
            unit="ratio",
            source=_GEOMETRY,
            absent="while the geometry is not known in full",
        ),
        gauge(
            "llama_slot_guaranteed_tokens",
            one(lambda server: server.geometry.guaranteed),
            "Tokens that a slot is sure to get whatever the others do: the slot context, and in a shared pool at most "
            "the capacity by the slots.",
            unit="tokens",
            source=_GEOMETRY,
            absent="while the geometry is not known in full",
        ),
        gauge(
            "llama_kv_pool_geometry_source",
            _geometry_source,
            "Where the geometry in force comes from, as label; the value is 1. config, journal (the server's log), "
            "cmdline (its options) or api (/props).",
            unit="",
            labels=("source",),
            source="kvexporter itself",
            absent="while no geometry is known",
        ),
        gauge(
            "llama_kv_cache_bytes",
            one(lambda server: server.kv_cache_bytes),
            "Memory of the KV cache, keys and values, all its parts together: also the second cache of a model with "
            "sliding-window attention and the state of a recurrent one.",
            unit="bytes",
            source=_KV_BYTES,
            absent=_NO_KV_BYTES + "; without a log's lines also for models with sliding windows",
        ),
        gauge(
            "llama_kv_bytes_per_token",
            one(lambda server: server.kv_bytes_per_token),
            "Memory that one token takes in the KV cache, in the layers that keep all tokens.",
            unit="bytes",
            source=_KV_BYTES,
            absent=_NO_KV_BYTES,
        ),
        gauge(
            "llama_kv_bytes_source",
            _kv_bytes_source,
            "Where llama_kv_bytes_per_token comes from, as label; the value is 1. journal (the size lines of the "
            "server's log) or header (the model file's header and the cache types).",
            unit="",
            labels=("source",),
            source="kvexporter itself",
            absent="while that is unknown",
        ),
        gauge(
            "llama_kv_header_bytes_per_token",
            one(lambda server: server.kv_header_bytes_per_token),
            "Memory that one token should take by the model file's header, where it differs by more than 2 % from what "
            "the log tells: then one of the two is misunderstood.",
            unit="bytes",
            source="the model file's header and the cache types",
            absent="while both agree, and where one of them is unknown",
        ),
    ),
)
