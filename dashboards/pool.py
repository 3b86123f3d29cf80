"""The dashboard of one server's KV pool: who holds it, will it be enough, who died, how large requests are."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import limits
from dashboards.page import Row, page
from dashboards.parts import (
    COUNT,
    DURATION,
    NOW,
    RATIO,
    SECONDS,
    TIMES,
    TOKENS,
    TOKENS_PER_SECOND,
    Override,
    Part,
    bars,
    buckets,
    colored,
    graph,
    line,
    number,
    rows,
)
from dashboards.queries import BY, Query, server
from kvexporter.rules.links import POOL_DASHBOARD

CAPACITY, GUARANTEED, IDLE = "pool capacity", "guaranteed to each slot", "idle slots' cache"
COMMITTED, DEMAND = "committed", "demand"
WINDOW = "slot context"


def pool() -> Dashboard:
    """Build it."""
    return page(
        POOL_DASHBOARD,
        "llama-server: pool",
        "One server's KV pool: who holds it, whether it will be enough, the last incident, the requests' sizes and "
        "speed.",
        Row("Now", _now()),
        Row("Who holds the pool", _held()),
        Row("Will it be enough?", _forecast()),
        Row("Requests that died", _incidents()),
        Row("Requests", _requests()),
        Row("Speed", _speed()),
        Row("Slots", _slots()),
        one_server=True,
    )


def _now() -> list[Part]:
    died = server("llama_context_exceeded_requests_total", window="$__range")
    return [
        number(
            "State", "What the server is doing.", COUNT,
            Query(f"{server('llama_server_state')} == 1", "{{state}}", "now"), names=True,
            runbooks=["LlamaServerDown", "LlamaServerLoadingTooLong"],
        ),
        number(
            "Fill", "Tokens of slots at work by the pool's capacity: what cannot be given back.", RATIO,
            Query(server("llama_kv_pool_fill_ratio"), "fill", "now"), limits=limits.FILL, decimals=0,
        ),
        number(
            "Peak of the last minute", "Highest fill of the last 60 seconds.", RATIO,
            Query(server("llama_kv_pool_fill_peak_ratio"), "peak", "now"), limits=limits.PEAK, decimals=0,
            runbooks=["LlamaPoolAlmostFull"],
        ),
        number(
            "Committed",
            "What the running requests will hold once their prompts are read, by the pool's capacity.",
            RATIO,
            Query(server("llama_kv_pool_committed_ratio"), COMMITTED, "now"), limits=limits.COMMITTED, decimals=0,
            runbooks=["LlamaPoolFillingUp"],
        ),
        number(
            "Full in", "Time until the pool is full if it goes on like this.", DURATION,
            Query(server("llama_kv_pool_seconds_to_full"), "full in", "now"), limits=limits.SECONDS_TO_FULL,
            none="not filling", runbooks=["LlamaPoolFillingUp", "LlamaPoolAlmostFull"],
        ),
        number(
            "Guaranteed window",
            "Tokens that a slot is sure to get whatever the others do: the window to tell clients.",
            TOKENS, Query(server("llama_slot_guaranteed_tokens"), "tokens", "now"),
        ),
        number(
            "Overcommit", "Tokens promised to all slots by the pool's capacity. Above 1 the pool can run out.", TIMES,
            Query(server("llama_kv_pool_overcommit_ratio"), "overcommit", "now"), limits=limits.OVERCOMMIT,
            runbooks=["LlamaPoolOvercommitted"],
        ),
        number(
            "Requests that died", "Requests that failed for want of context in this time range.", COUNT,
            Query(f"round(sum(increase({died})))", "requests", "now"), limits=limits.ANY, none="log not read",
            runbooks=["LlamaContextExceeded"],
        ),
    ]  # fmt: skip


def _held() -> list[Part]:
    at_work = f"{server('llama_slot_tokens')} * {server('llama_slot_processing')}"
    return [
        graph(
            "Tokens by slot",
            "What each slot at work holds, one upon the other, and on top the cache of idle slots, which is given "
            "back when room is needed. When the slots at work reach the pool's capacity, all their requests die. "
            "Committed is what the running requests will hold once their prompts are read; demand is the same with "
            "their answers written up to their limits, which few of them reach.",
            TOKENS,
            Query(at_work, "slot {{slot}}"),
            Query(server("llama_kv_pool_tokens", 'state="idle"'), IDLE),
            Query(server("llama_kv_pool_capacity_tokens"), CAPACITY),
            Query(server("llama_slot_guaranteed_tokens"), GUARANTEED),
            Query(server("llama_kv_pool_committed_tokens"), COMMITTED),
            Query(server("llama_kv_pool_demand_tokens"), DEMAND),
            width=24, height=11, stacked=True,
            overrides=[
                colored(IDLE, "#8e8e8e"),
                line(CAPACITY, limits.RED, dash=False),
                line(GUARANTEED, limits.GREEN),
                line(COMMITTED, "orange"),
                line(DEMAND, "purple"),
            ],
            runbooks=["LlamaPoolFillingUp", "LlamaPoolOvercommitted"],
        ),
    ]  # fmt: skip


def _forecast() -> list[Part]:
    def above(fill: str) -> Query:
        below = server("llama_kv_pool_fill_seconds_bucket", f'le="{fill}"', window="$__range")
        seconds = server("llama_kv_pool_fill_seconds_count", window="$__range")
        share = f"1 - sum by ({BY}) (increase({below})) / sum by ({BY}) (increase({seconds}))"
        # Rates are extrapolated, so a share that is 0 may come out as a little less.
        return Query(f"clamp_min({share}, 0)", f"above {float(fill):.0%}", "now")

    return [
        graph(
            "Fill, peak and what is to come",
            "All by the pool's capacity. The peak is the highest fill of the last minute. Committed: once the running "
            "prompts are read. Demand: once their answers are written up to their limits. Both are known before the "
            "fill shows it.",
            RATIO,
            Query(server("llama_kv_pool_fill_ratio"), "fill"),
            Query(server("llama_kv_pool_fill_peak_ratio"), "peak"),
            Query(server("llama_kv_pool_committed_ratio"), COMMITTED),
            Query(server("llama_kv_pool_demand_ratio"), DEMAND),
            width=10, top=1, limits=limits.FILL,
            overrides=[
                colored("fill", "blue"),
                colored("peak", "#8e8e8e"),
                colored(COMMITTED, "orange"),
                colored(DEMAND, "purple"),
            ],
            runbooks=["LlamaPoolFillingUp", "LlamaPoolAlmostFull"],
        ),
        graph(
            "Time to full",
            "Time until the pool is full if it goes on like this; none while it does not fill or cannot run out. The "
            "lines are where the alerts begin.",
            SECONDS, Query(server("llama_kv_pool_seconds_to_full"), "full in"),
            width=8, limits=limits.SECONDS_TO_FULL, runbooks=["LlamaPoolFillingUp", "LlamaPoolAlmostFull"],
        ),
        bars(
            "Time at high fill",
            "Part of this time range in which the fill was higher than this, of the time it was known.",
            RATIO, *(above(fill) for fill in ("0.5", "0.7", "0.8", "0.9", "0.95", "0.98")), width=6,
        ),
    ]  # fmt: skip


def _incidents() -> list[Part]:
    def events(metric: str, name: str, *, by_cause: bool = False) -> Query:
        by = f"{BY}, cause" if by_cause else BY
        return Query(f"sum by ({by}) (increase({server(metric, window='$__rate_interval')}))", name)

    slots = server("llama_last_incident_slot_tokens")
    excess = server("llama_last_incident_excess_tokens")
    # One column of tokens for the slots, their sum, and what was too much.
    tokens = (
        f'max by (slot) ({slots}) or label_replace(sum({slots}), "slot", "sum", "", "") '
        f'or label_replace(max({excess}), "slot", "excess", "", "")'
    )
    share = f"({tokens}) / scalar(max({server('llama_kv_pool_capacity_tokens')}))"
    return [
        rows(
            "The last incident",
            "What each slot held when the pool last ran out, their sum, and how much more that is than the pool has. "
            "The error kills all running requests; the largest one filled the pool.",
            Query(tokens, shape="table"),
            Query(share, shape="table"),
            width=7, height=9,
            columns=[("slot", "Slot"), ("Value #A", "Tokens"), ("Value #B", "Share of the pool")],
            overrides=[
                Override("Tokens", properties=(("unit", TOKENS),)),
                Override("Share of the pool", properties=(("unit", RATIO), ("decimals", 1))),
            ],
            none="no incident", runbooks=["LlamaContextExceeded"],
        ),
        number(
            "It was", "When requests last died for want of context.", NOW,
            Query(f"{server('llama_last_incident_timestamp_seconds')} * 1000", "when", "now"),
            width=3, height=9, none="never", runbooks=["LlamaContextExceeded"],
        ),
        graph(
            "Requests that died",
            "Requests that failed for want of context. pool: the running requests together filled the shared pool, "
            "and all of them failed. slot: one request was larger than its own slot.",
            COUNT, events("llama_context_exceeded_requests_total", "{{cause}}", by_cause=True),
            width=7, height=9, bars=True, overrides=[colored("pool", limits.RED), colored("slot", "orange")],
            runbooks=["LlamaContextExceeded", "LlamaRequestTooLong"],
        ),
        graph(
            "Want of room",
            "Batches that found no room, times that it went on without an error, and idle slots that were emptied to "
            "make room.",
            COUNT,
            events("llama_kv_pressure_lines_total", "failed batches"),
            events("llama_kv_recoveries_total", "recoveries"),
            events("llama_slot_purges_total", "idle slots emptied"),
            width=7, height=9, bars=True, runbooks=["LlamaPoolPressure"],
        ),
    ]  # fmt: skip


def _requests() -> list[Part]:
    sizes = server("llama_request_tokens_bucket", window="$__range")

    def size(quantile: str, name: str) -> Query:
        return Query(f"histogram_quantile({quantile}, sum by (le) (increase({sizes}))) > 0", name, "now")

    return [
        bars(
            "Sizes of requests against the window",
            "Prompt and answer together, of requests that ended in this time range, with what a slot is sure of and "
            "what it is promised. The largest is the upper bound of its bucket. Requests above the guaranteed window "
            "live at the others' expense.",
            TOKENS,
            size("0.5", "half of them up to"),
            size("0.95", "95 % up to"),
            size("1", "the largest up to"),
            Query(server("llama_slot_guaranteed_tokens"), "guaranteed", "now"),
            Query(server("llama_slot_context_tokens"), WINDOW, "now"),
            overrides=[colored("guaranteed", limits.GREEN), colored(WINDOW, limits.RED)], none="no request ended",
        ),
        buckets(
            "Sizes of requests over time", "How many requests of each size ended: prompt and answer together.", TOKENS,
            Query(
                f"sum by (le) (increase({server('llama_request_tokens_bucket', window='$__rate_interval')}))",
                "{{le}}", "heatmap",
            ),
        ),
        graph(
            "Queue",
            "Requests at work and requests that wait for a slot. What waits is known of servers started with "
            "--metrics.",
            COUNT,
            Query(server("llama_requests_processing"), "at work"),
            Query(server("llama_requests_deferred"), "waiting"),
            Query(server("llama_slots"), "slots"),
            overrides=[line("slots", limits.RED), colored("at work", "blue"), colored("waiting", "orange")],
            runbooks=["LlamaRequestsDeferred"],
        ),
    ]  # fmt: skip


def _speed() -> list[Part]:
    def quantile(metric: str, part: str, name: str) -> Query:
        found = server(f"{metric}_bucket", window="$__rate_interval")
        return Query(f"histogram_quantile({part}, sum by ({BY}, le) (rate({found})))", name)

    def per_second(metric: str, name: str) -> Query:
        return Query(f"rate({server(metric, window='$__rate_interval')})", name)

    return [
        graph(
            "Writing speed", "Of the requests that ended: tokens of the answer by the time of writing it.",
            TOKENS_PER_SECOND,
            quantile("llama_generation_tokens_per_second", "0.5", "half of them up to"),
            quantile("llama_generation_tokens_per_second", "0.1", "the slowest tenth up to"),
            runbooks=["LlamaGenerationSlow"],
        ),
        graph(
            "Reading speed", "Of the requests that ended: tokens of the prompt by the time of reading it.",
            TOKENS_PER_SECOND,
            quantile("llama_prompt_tokens_per_second", "0.5", "half of them up to"),
            quantile("llama_prompt_tokens_per_second", "0.1", "the slowest tenth up to"),
        ),
        graph(
            "Tokens of the whole server",
            "Tokens that the server reads and writes, all requests together, by its own counters: it must be started "
            "with --metrics.",
            TOKENS_PER_SECOND,
            per_second("llama_prompt_tokens_total", "read"),
            per_second("llama_predicted_tokens_total", "written"),
        ),
    ]  # fmt: skip


def _slots() -> list[Part]:
    def ended(metric: str, name: str) -> Query:
        return Query(f"increase({server(metric, window='$__rate_interval')})", name)

    return [
        graph(
            "Age of running requests", "Time since each slot began with its request.", SECONDS,
            Query(server("llama_slot_task_age_seconds"), "slot {{slot}}"),
            limits=limits.TASK_AGE, runbooks=["LlamaSlotRunsOn"],
        ),
        graph(
            "Standstill",
            "Time since anything of a slot's request last changed. It grows on a hung server and on an abandoned "
            "request, not on a long prompt.",
            SECONDS, Query(server("llama_slot_stalled_seconds"), "slot {{slot}}"),
            limits=limits.STALLED, runbooks=["LlamaSlotStalled"],
        ),
        graph(
            "Requests cut short",
            "Answers that ended at the slot's end, requests whose client went away, and prompts that lost their "
            "middle part.",
            COUNT,
            ended("llama_answers_truncated_total", "answers cut off"),
            ended("llama_requests_cancelled_total", "cancelled by the client"),
            ended("llama_context_shifts_total", "context shifts"),
            bars=True,
        ),
    ]  # fmt: skip
