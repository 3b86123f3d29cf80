"""From the parts of one server's model to what the views see of it at one moment."""

from __future__ import annotations

from kvexporter.forecast import committed_tokens, demand_tokens
from kvexporter.kv_bytes import kv_bytes
from kvexporter.llama.exposition import UpstreamMetrics
from kvexporter.server_fill import oldest, processing_tokens, tasks_told
from kvexporter.server_parts import ServerParts
from kvexporter.snapshot import LifeSnapshot, PoolSnapshot, ServerSnapshot, UpstreamCounters


def snapshot_of(parts: ServerParts, at: float, *, name: str, unit: str | None, url: str | None) -> ServerSnapshot:
    """All that is known at `at`; what is too old is left out."""
    now = max(at, parts.now)
    ledger, polls, requests = parts.ledger, parts.polls, parts.ledger.requests
    live = parts.availability.state not in ("down", "loading")
    told = live and tasks_told(parts, now)
    kv = kv_bytes(parts.shape.startup, parts.model_shape, parts.shape.options, parts.geometry.capacity)
    upstream = parts.upstream if live and parts.upstream is not None else UpstreamMetrics()
    fresh = polls.fresh("metrics", now)
    deferred = _count(upstream.requests_deferred) if fresh else None
    return ServerSnapshot(
        name=name,
        unit=unit,
        url=url,
        model=parts.model,
        build=parts.build,
        up=parts.availability.up,
        state=parts.availability.state,
        life=_life(parts, deferred),
        requests_processing=_requests_processing(parts, told, upstream if fresh else None),
        requests_deferred=deferred,
        geometry=parts.geometry,
        kv_cache_bytes=kv.cache,
        kv_bytes_per_token=kv.per_token,
        kv_bytes_source=kv.source,
        kv_header_bytes_per_token=kv.header_per_token,
        slots=parts.pool.snapshot(now, oldest(parts, now)) if told else (),
        pool=_pool(parts, now) if told else None,
        fill_seconds=parts.occupancy.snapshot(),
        fill_history=parts.occupancy.history(parts.now if parts.behind else now),
        counters=ledger.counters.snapshot(of_unit=(parts.has_log or parts.has_unit) and unit is not None),
        has_log=parts.has_log,
        last_incident=ledger.last_pool_incident,
        incidents=tuple(ledger.incidents),
        open_incident=ledger.open_incident(parts.geometry, parts.build),
        pressure_at=ledger.pressure_at,
        cascade_since=ledger.cascade_since,
        request_tokens=requests.tokens.snapshot() if parts.has_log else None,
        request_prompt_tokens=requests.prompt_tokens.snapshot() if parts.has_log else None,
        prompt_speed=requests.prompt_speed.snapshot() if parts.has_log else None,
        generation_speed=requests.generation_speed.snapshot() if parts.has_log else None,
        upstream=_upstream_counters(upstream),
        process=parts.process,
        cgroup=parts.cgroup,
        gpu_process_memory=parts.gpu_memory,
        memory_at_ready=parts.memory_at_ready.at_ready(),
        memory_growth=parts.memory_at_ready.growth(),
        last_poll=dict(polls.last),
        poll_failures=dict(polls.failures),
        failing=dict(polls.failing),
    )


def _life(parts: ServerParts, deferred: int | None) -> LifeSnapshot:
    """What befell it lately; `deferred`: requests that wait now."""
    spells, unit = parts.spells, parts.unit_life
    kills = [at for at in (unit.oom_killed_at, parts.oom_killed_at) if at is not None]
    return LifeSnapshot(
        down_since=spells.down_since,
        loading_since=spells.loading_since,
        deferred_since=spells.deferred_since if deferred else None,
        stopped_on_request=unit.stopped_on_request,
        restarts_at=tuple(unit.restarts_at),
        exited_at=unit.exited_at,
        exit_code=unit.exit_code,
        oom_killed_at=max(kills, default=None),
    )


def _requests_processing(parts: ServerParts, told: bool, upstream: UpstreamMetrics | None) -> int | None:
    if parts.availability.state in ("down", "loading"):
        return None
    if told:
        return len(parts.pool.running())
    return _count(upstream.requests_processing) if upstream is not None else None


def _pool(parts: ServerParts, now: float) -> PoolSnapshot | None:
    processing, idle = processing_tokens(parts, now), parts.pool.idle_tokens()
    if processing is None:
        return None
    capacity, context = parts.geometry.capacity, parts.geometry.slot_context
    slots = parts.pool.slots.values()
    committed, demand = committed_tokens(slots, context), demand_tokens(slots, context)
    return PoolSnapshot(
        processing_tokens=processing,
        idle_tokens=idle,
        fill_ratio=processing / capacity if capacity else None,
        resident_ratio=(processing + idle) / capacity if capacity and idle is not None else None,
        fill_peak_ratio=parts.occupancy.peak(now),
        committed_tokens=committed,
        committed_ratio=committed / capacity if capacity else None,
        demand_tokens=demand,
        demand_ratio=demand / capacity if capacity else None,
        seconds_to_full=parts.forecast.seconds_to_full(slots, processing, parts.geometry, now),
    )


def _upstream_counters(metrics: UpstreamMetrics) -> UpstreamCounters:
    return UpstreamCounters(
        prompt_tokens=metrics.prompt_tokens_total,
        prompt_tokens_cached=metrics.prompt_tokens_cached_total,
        prompt_seconds=metrics.prompt_seconds_total,
        predicted_tokens=metrics.predicted_tokens_total,
        predicted_seconds=metrics.predicted_seconds_total,
        decode_calls=metrics.decode_calls_total,
        draft_tokens=metrics.draft_tokens_total,
        draft_accepted_tokens=metrics.draft_accepted_tokens_total,
    )


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)
