"""The dashboard of all servers: which of them is full, failing, slow or large."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import DashboardLink, ThresholdsConfig
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import limits
from dashboards.page import VARIABLES_OF_LINKS, Row, page
from dashboards.parts import (
    BYTES,
    COUNT,
    RATIO,
    SECONDS,
    TIMES,
    TOKENS,
    TOKENS_PER_SECOND,
    Override,
    Part,
    graph,
    number,
    rows,
    timeline,
)
from dashboards.queries import BY, Query, hosts
from kvexporter.rules.links import FLEET_DASHBOARD, MEMORY_DASHBOARD, POOL_DASHBOARD

NAME = "{{instance}} {{server}}"

POOL_LINK = DashboardLink("Pool of ${__field.labels.server}").url(f"/d/{POOL_DASHBOARD}?{VARIABLES_OF_LINKS}")
MEMORY_LINK = DashboardLink("Memory of ${__field.labels.server}").url(f"/d/{MEMORY_DASHBOARD}?{VARIABLES_OF_LINKS}")


def fleet() -> Dashboard:
    """Build it."""
    return page(
        FLEET_DASHBOARD,
        "llama-server: fleet",
        "All llama-servers that kvexporter watches: KV pools, requests that died for want of context, speed, memory.",
        Row("Now", _now()),
        Row("Servers", [_servers()]),
        Row("Pools", _pools()),
        Row("Errors", _errors()),
        Row("Speed", _speed()),
        Row("Memory", _memory()),
        Row("Exporters", _exporters()),
        one_server=False,
    )


def _now() -> list[Part]:
    died = f"round(sum(increase({hosts('llama_context_exceeded_requests_total', window='$__range')})))"
    return [
        number(
            "Servers", "Servers that are up, and that are down. One that loads its model or sleeps is up.", COUNT,
            Query(f"sum({hosts('llama_up')})", "up", "now"),
            Query(f"sum(1 - {hosts('llama_up')})", "down", "now"),
            width=6, runbooks=["LlamaServerDown"],
        ),
        number(
            "Requests that died", "Requests that failed for want of context in this time range.", COUNT,
            Query(died, "requests", "now"),
            width=6, limits=limits.ANY, runbooks=["LlamaContextExceeded", "LlamaRequestTooLong"],
        ),
        number(
            "Fullest pool",
            "Highest fill of any pool in the last minute, by what cannot be given back. At 100 % its requests die.",
            RATIO,
            Query(f"max({hosts('llama_kv_pool_fill_peak_ratio')})", "fill", "now"),
            width=6, limits=limits.PEAK, runbooks=["LlamaPoolAlmostFull"],
        ),
        number(
            "Requests that wait",
            "Requests that wait for a free slot, on servers that were started with --metrics and are not idle.", COUNT,
            Query(f"sum({hosts('llama_requests_deferred')})", "requests", "now"),
            width=6, limits=limits.DEFERRED, none="none known", runbooks=["LlamaRequestsDeferred"],
        ),
    ]  # fmt: skip


def _servers() -> Part:
    def of_each(expression: str) -> Query:
        return Query(f"max by ({BY}) ({expression})", shape="table")

    speed = hosts("llama_generation_tokens_per_second_sum", window="$__range")
    requests = hosts("llama_generation_tokens_per_second_count", window="$__range")
    died = hosts("llama_context_exceeded_requests_total", window="$__range")
    return rows(
        "Servers",
        "Each server now; requests that died and speed are of this time range. Committed is what the running requests "
        "will hold once their prompts are read, by what the pool has. Overcommit is what all slots are promised by "
        "what the pool has: above 1 it can run out. Click a name for its pool.",
        Query(f"max by ({BY}, model, build) ({hosts('llama_server_info')})", shape="table"),
        Query(f"max by ({BY}, state) ({hosts('llama_server_state')}) == 1", shape="table"),
        of_each(hosts("llama_kv_pool_fill_ratio")),
        of_each(hosts("llama_kv_pool_fill_peak_ratio")),
        of_each(hosts("llama_kv_pool_committed_ratio")),
        of_each(hosts("llama_kv_pool_overcommit_ratio")),
        of_each(hosts("llama_slot_guaranteed_tokens")),
        Query(f"round(sum by ({BY}) (increase({died})))", shape="table"),
        # Compared with 0 so that a server without requests has an empty cell and not NaN.
        Query(f"sum by ({BY}) (increase({speed})) / sum by ({BY}) (increase({requests})) > 0", shape="table"),
        of_each(hosts("llama_process_resident_memory_bytes")),
        columns=[
            ("job", "Job"),
            ("instance", "Instance"),
            ("server", "Server"),
            ("state", "State"),
            ("model", "Model"),
            ("build", "Build"),
            ("Value #C", "Fill"),
            ("Value #D", "Peak"),
            ("Value #E", "Committed"),
            ("Value #F", "Overcommit"),
            ("Value #G", "Guaranteed window"),
            ("Value #H", "Died"),
            ("Value #I", "Speed"),
            ("Value #J", "Resident"),
        ],
        hidden=["Value #A", "Value #B"],
        overrides=[
            # Kept, for the link needs it.
            Override("Job", properties=(("custom.hidden", True),)),
            Override("Server", properties=(("links", _links_of_rows()),)),
            Override("Fill", properties=(("unit", RATIO), ("decimals", 0))),
            Override("Peak", properties=(("unit", RATIO), ("decimals", 0), *_colored(limits.PEAK))),
            Override("Committed", properties=(("unit", RATIO), ("decimals", 0), *_colored(limits.COMMITTED))),
            Override("Overcommit", properties=(("unit", TIMES), *_colored(limits.OVERCOMMIT))),
            Override("Guaranteed window", properties=(("unit", TOKENS),)),
            Override("Died", properties=(("unit", COUNT), *_colored(limits.ANY))),
            Override("Speed", properties=(("unit", TOKENS_PER_SECOND), ("decimals", 1))),
            Override("Resident", properties=(("unit", BYTES),)),
        ],
        sort="Server",
        none="",
    )


def _links_of_rows() -> list[dict[str, object]]:
    chosen = (
        "var-datasource=${datasource}&var-job=${__data.fields.Job}&var-instance=${__data.fields.Instance}"
        "&var-server=${__data.fields.Server}&${__url_time_range}"
    )
    return [
        {"title": title, "url": f"/d/{uid}?{chosen}"}
        for title, uid in (("Pool", POOL_DASHBOARD), ("Memory", MEMORY_DASHBOARD))
    ]


def _colored(steps: ThresholdsConfig) -> tuple[tuple[str, object], ...]:
    return (("thresholds", steps.build()), ("custom.cellOptions", {"type": "color-text"}))


def _pools() -> list[Part]:
    return [
        graph(
            "Fill",
            "Tokens of slots at work by the pool's capacity: what cannot be given back. At 100 % of a shared pool all "
            "its running requests die.",
            RATIO, Query(hosts("llama_kv_pool_fill_ratio"), NAME),
            width=12, top=1, limits=limits.FILL, link=POOL_LINK, runbooks=["LlamaPoolFillingUp"],
        ),
        graph(
            "Committed",
            "What the running requests will hold once their prompts are read, by the pool's capacity. From 100 % on "
            "the pool runs out unless one of them ends before.",
            RATIO, Query(hosts("llama_kv_pool_committed_ratio"), NAME),
            width=12, top=1, limits=limits.COMMITTED, link=POOL_LINK, runbooks=["LlamaPoolFillingUp"],
        ),
        graph(
            "Peak of the last minute", "Highest fill of the last 60 seconds, whatever the scrape interval.", RATIO,
            Query(hosts("llama_kv_pool_fill_peak_ratio"), NAME),
            width=12, top=1, limits=limits.PEAK, link=POOL_LINK, runbooks=["LlamaPoolAlmostFull"],
        ),
        graph(
            "Overcommit",
            "Tokens promised to all slots by the pool's capacity. At 1 or less the pool cannot run out; 4 means that "
            "four slots are each promised all of it.",
            TIMES, Query(hosts("llama_kv_pool_overcommit_ratio"), NAME),
            width=12, limits=limits.OVERCOMMIT, link=POOL_LINK, runbooks=["LlamaPoolOvercommitted"],
        ),
    ]  # fmt: skip


def _errors() -> list[Part]:
    died = hosts("llama_context_exceeded_requests_total", window="$__rate_interval")
    pressure = hosts("llama_kv_pressure_lines_total", window="$__rate_interval")
    return [
        graph(
            "Requests that died",
            "Requests that failed for want of context, by cause. pool: the running requests together filled the shared "
            "pool. slot: one request was larger than its own slot.",
            COUNT, Query(f"sum by ({BY}, cause) (increase({died}))", f"{NAME}: {{{{cause}}}}"),
            width=12, bars=True, link=POOL_LINK, runbooks=["LlamaContextExceeded", "LlamaRequestTooLong"],
        ),
        graph(
            "Batches that found no room",
            "Failed attempts to place a batch. They come before the first error, and without one where a smaller "
            "batch fits.",
            COUNT, Query(f"sum by ({BY}) (increase({pressure}))", NAME),
            width=12, bars=True, link=POOL_LINK, runbooks=["LlamaPoolPressure"],
        ),
    ]  # fmt: skip


def _speed() -> list[Part]:
    def median(metric: str) -> Query:
        buckets = hosts(f"{metric}_bucket", window="$__rate_interval")
        return Query(f"histogram_quantile(0.5, sum by ({BY}, le) (rate({buckets})))", NAME)

    return [
        graph(
            "Writing speed", "Median over the requests that ended: tokens of the answer by the time of writing it.",
            TOKENS_PER_SECOND, median("llama_generation_tokens_per_second"),
            width=12, link=POOL_LINK, runbooks=["LlamaGenerationSlow"],
        ),
        graph(
            "Reading speed", "Median over the requests that ended: tokens of the prompt by the time of reading it.",
            TOKENS_PER_SECOND, median("llama_prompt_tokens_per_second"), width=12, link=POOL_LINK,
        ),
    ]  # fmt: skip


def _memory() -> list[Part]:
    return [
        graph(
            "Resident memory",
            "Memory of each server's process in RAM. Weights mapped from files count as far as they are in the page "
            "cache.",
            BYTES, Query(hosts("llama_process_resident_memory_bytes"), NAME),
            link=MEMORY_LINK, runbooks=["LlamaMemoryCreeping"],
        ),
        graph(
            "KV caches", "Memory of each server's KV cache. It is taken at the start and does not grow.", BYTES,
            Query(hosts("llama_kv_cache_bytes"), NAME), link=MEMORY_LINK,
        ),
        graph(
            "GPU memory", "Memory that each server holds on GPUs. Hosts without a GPU have none.", BYTES,
            Query(f"sum by ({BY}) ({hosts('llama_gpu_process_memory_bytes')})", NAME),
            link=MEMORY_LINK, runbooks=["LlamaGpuMemoryLow", "LlamaUnifiedMemoryLow"],
        ),
    ]  # fmt: skip


def _exporters() -> list[Part]:
    return [
        timeline(
            "Sources",
            "Whether each exporter can read its sources. gpu fails on a host without a GPU; `kvexporter check` says "
            "why another one fails.",
            {0: ("fails", limits.RED), 1: ("read", limits.GREEN)},
            Query(hosts("kvexporter_collector_success"), "{{instance}} {{collector}}"),
            width=12, runbooks=["KvexporterCollectorFailing"],
        ),
        graph(
            "Journal lag",
            "Time between the latest log line and the moment it was read. journald itself delays a lone line by "
            "up to half a second.",
            SECONDS, Query(hosts("kvexporter_journal_lag_seconds"), "{{instance}}"),
            width=12, height=6, limits=limits.JOURNAL_LAG, runbooks=["KvexporterJournalNotRead"],
        ),
    ]  # fmt: skip
