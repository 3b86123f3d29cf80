"""What a server does, in sentences: for people, and for who reads the page by ear. Pure."""

from __future__ import annotations

from kvexporter.incident_words import counted
from kvexporter.reports.pool_words import pool_words
from kvexporter.snapshot import Counters, HistogramSnapshot, PoolSnapshot, ServerSnapshot
from kvexporter.web.amounts import duration, percent, size, tokens


def server_words(server: ServerSnapshot) -> dict[str, str | None]:
    """State, fill, demand, time left, speed and the pool's shape; None where there is nothing to say."""
    shape = pool_words(server.geometry)
    return {
        "state": _state(server),
        "fill": _fill(server),
        "demand": _demand(server),
        "time_left": _time_left(server),
        "speed": _speed(server),
        "pool": f"{_capital(shape.text)}." if shape is not None else None,
        "pool_remedy": f"{_capital(shape.remedy)}." if shape is not None and shape.remedy else None,
        "kv_cache": _kv_cache(server),
    }


def _state(server: ServerSnapshot) -> str:
    if server.state is None:
        return "Its state is not known yet."
    if server.state == "down" and server.life.stopped_on_request:
        return f"It is stopped: systemd was asked to stop its unit.{_ends(server.counters)}"
    if server.state == "down":
        return f"It is down.{_ends(server.counters)}"
    if server.state == "loading":
        return "It loads its model."
    if server.state == "sleeping":
        return "It sleeps: its model is unloaded until the next request."
    running, slots, waiting = server.requests_processing, server.geometry.slots, server.requests_deferred
    if running is None:
        text = "It is ready"
    elif running == 0:
        text = "It is ready and has nothing to do"
    else:
        text = f"It works on {counted(running, 'request')}"
        text += f" in {slots} {'slot' if slots == 1 else 'slots'}" if slots is not None else ""
    if waiting:
        text += f"; {counted(waiting, 'more request')} {'waits' if waiting == 1 else 'wait'} for a slot"
    return f"{text}."


def _ends(counters: Counters) -> str:
    """How its process has ended badly so far, which tells a crash loop from a server that was stopped."""
    if not counters.unit_exits:
        return ""
    how = ", ".join(f"{status} ({number:,})" for status, number in sorted(counters.unit_exits.items()))
    text = f" So far its process ended badly {counted(sum(counters.unit_exits.values()), 'time')}, with {how}"
    if counters.unit_restarts:
        text += f"; systemd started it anew {counted(counters.unit_restarts, 'time')}"
    return f"{text}."


def _fill(server: ServerSnapshot) -> str | None:
    pool, capacity = server.pool, server.geometry.capacity
    if pool is None:
        return None
    text = f"Running requests hold {tokens(pool.processing_tokens)}"
    text += f" of {tokens(capacity)} tokens ({percent(pool.fill_ratio)})" if capacity else " tokens"
    if pool.fill_peak_ratio is not None and pool.fill_peak_ratio > (pool.fill_ratio or 0.0):
        text += f", at most {percent(pool.fill_peak_ratio)} in the last minute"
    working = [(slot.tokens, slot.id) for slot in server.slots if slot.processing and slot.tokens]
    if len(working) > 1:
        most, slot = max(working)
        share = f" ({percent(most / capacity)})" if capacity else ""
        text += f"; slot {slot} holds most of it, {tokens(most)}{share}"
    if pool.idle_tokens:
        text += f"; idle slots keep {tokens(pool.idle_tokens)} as cache, given back when room is needed"
    return f"{text}."


def _demand(server: ServerSnapshot) -> str | None:
    pool, capacity = server.pool, server.geometry.capacity
    if pool is None:
        return None
    parts = []
    if pool.committed_tokens and pool.committed_tokens > pool.processing_tokens:
        parts.append(
            f"once their prompts are read they hold at least {_of(pool.committed_tokens, pool.committed_ratio)}"
        )
    if pool.demand_tokens and pool.demand_tokens != pool.committed_tokens:
        parts.append(f"with answers as long as is allowed {_of(pool.demand_tokens, pool.demand_ratio)}")
    if not parts:
        return None
    most = max(pool.committed_tokens or 0, pool.demand_tokens or 0)
    beyond = f": {tokens(most - capacity)} more than there are" if capacity and most > capacity else ""
    return f"{_capital('; '.join(parts))}{beyond}."


def _of(number: int, ratio: float | None) -> str:
    return f"{tokens(number)} tokens" + ("" if ratio is None else f" ({percent(ratio)})")


def _time_left(server: ServerSnapshot) -> str | None:
    pool, geometry = server.pool, server.geometry
    if server.state in ("down", "loading"):
        return None
    if geometry.overcommit_ratio is not None and geometry.overcommit_ratio <= 1.0:
        return "The pool cannot run out."
    if pool is None or pool.fill_ratio is None:
        return None
    if pool.seconds_to_full is not None:
        return f"If it goes on like this the pool is full in about {duration(pool.seconds_to_full)}."
    if pool.fill_ratio >= 1.0:
        return "The pool is full."
    return _not_filling(pool)


def _not_filling(pool: PoolSnapshot) -> str:
    if pool.committed_ratio is not None and pool.committed_ratio >= 1.0:
        return "The pool will be full unless a request ends before; when cannot be said yet."
    return "The pool is not seen to be filling." if pool.processing_tokens else "Nothing runs."


def _speed(server: ServerSnapshot) -> str | None:
    writing, reading = _mean(server.generation_speed), _mean(server.prompt_speed)
    parts = [f"writes {writing:.1f} tokens/s"] if writing is not None else []
    parts += [f"reads {reading:.0f} tokens/s"] if reading is not None else []
    if not parts:
        return None
    histogram = server.generation_speed if writing is not None else server.prompt_speed
    count = counted(round(histogram.count), "request") if histogram is not None else ""
    return f"{_capital(' and '.join(parts))}, the mean of {count}."


def _mean(histogram: HistogramSnapshot | None) -> float | None:
    return histogram.sum / histogram.count if histogram is not None and histogram.count else None


def _kv_cache(server: ServerSnapshot) -> str | None:
    if server.kv_cache_bytes is None:
        return None
    each = server.kv_bytes_per_token
    return f"The KV cache takes {size(server.kv_cache_bytes)}" + (
        f", {each / 1024:.4g} KiB for each token." if each is not None else "."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
