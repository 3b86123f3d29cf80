"""The dashboard of one server's memory: process, page cache, control group, GPU, KV cache, before and after a start."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import limits
from dashboards.page import Row, page
from dashboards.parts import BYTES, COUNT, RATIO, Part, colored, graph, line, number
from dashboards.queries import BY, Query, hosts, server
from kvexporter.rules.links import MEMORY_DASHBOARD

CELSIUS, WATT = "celsius", "watt"
PER_SECOND = "cps"
NO_GPU = "no GPU"


def memory() -> Dashboard:
    """Build it."""
    return page(
        MEMORY_DASHBOARD,
        "llama-server: memory",
        "One server's memory: its process, page cache and control group, GPU or unified memory, the KV cache, and "
        "what a change of its options cost.",
        Row("Now", _now()),
        Row("Process", _process()),
        Row("Before and after a restart", _starts()),
        Row("Page cache and control group", _group()),
        Row("GPU or unified memory", _gpu()),
        one_server=True,
    )


def _now() -> list[Part]:
    faults = server("llama_process_major_page_faults_total", window="$__rate_interval")
    return [
        number(
            "Resident", "Memory of the process in RAM, with the mapped weights that are in the page cache.", BYTES,
            Query(server("llama_process_resident_memory_bytes"), "resident", "now"), none="not on this host",
        ),
        number(
            "KV cache", "Memory of the KV cache, wherever it is.", BYTES,
            Query(server("llama_kv_cache_bytes"), "bytes", "now"),
        ),
        number(
            "KV cache of one token", "What one more token of pool costs.", BYTES,
            Query(server("llama_kv_bytes_per_token"), "bytes", "now"),
        ),
        number(
            "Growth",
            "The process's own memory beyond what it took once it was ready. Saved prompts (--cache-ram) make it grow.",
            BYTES, Query(server("llama_memory_growth_bytes", 'kind="anon"'), "bytes", "now"),
            none="not settled yet", runbooks=["LlamaMemoryCreeping"],
        ),
        number(
            "Control group", "Memory of the server's control group, page cache included.", BYTES,
            Query(server("llama_cgroup_memory_bytes", 'kind="current"'), "bytes", "now"), none="not counted",
        ),
        number(
            "On GPUs", "Memory that the server holds on all GPUs.", BYTES,
            Query(f"sum({server('llama_gpu_process_memory_bytes')})", "bytes", "now"), none=NO_GPU,
        ),
        number(
            "Unified memory left", "Part of the host's memory that a GPU which shares it can still get.", RATIO,
            Query(
                f"{hosts('llama_unified_memory_available_bytes')} / {hosts('llama_unified_memory_total_bytes')}",
                "left", "now",
            ),
            limits=limits.UNIFIED_AVAILABLE, none="not unified", runbooks=["LlamaUnifiedMemoryLow"],
        ),
        number(
            "Read again from disk", "Page faults that read from disk, each second.", PER_SECOND,
            Query(f"rate({faults})", "faults", "now"),
            limits=limits.MAJOR_FAULTS, none="unknown", runbooks=["LlamaWeightsReread"], decimals=0,
        ),
    ]  # fmt: skip


def _process() -> list[Part]:
    held = f"{server('llama_kv_pool_tokens')} * on ({BY}) group_left () {server('llama_kv_bytes_per_token')}"
    return [
        graph(
            "Memory of the process",
            "By kind. anon is its own: the KV cache when it is in RAM, and other buffers. file is mapped from files, "
            "mostly weights, and can be read again. swap is not in RAM. Memory on a GPU is not in it.",
            BYTES,
            Query(server("llama_process_memory_bytes"), "{{kind}}"),
            Query(server("llama_process_resident_memory_bytes"), "resident"),
            width=12, height=9, stacked=True, overrides=[line("resident", "blue")], runbooks=["LlamaMemoryCreeping"],
        ),
        graph(
            "KV cache",
            "Memory of the whole cache, and what of it the tokens of slots at work and of idle slots take.",
            BYTES,
            Query(held, "{{state}}"),
            Query(server("llama_kv_cache_bytes"), "whole cache"),
            width=12, height=9, stacked=True,
            overrides=[line("whole cache", limits.RED, dash=False), colored("idle", "#8e8e8e")],
        ),
    ]  # fmt: skip


def _starts() -> list[Part]:
    started = server("llama_process_start_time_seconds", window="$__rate_interval")
    return [
        graph(
            "Memory once ready",
            "What the server took once it was ready and had settled. A step is another start: its size is what the "
            "change of options cost. `kvexporter check` compares the last two starts.",
            BYTES, Query(server("llama_memory_at_ready_bytes"), "{{kind}}"), width=8,
        ),
        graph(
            "Growth since then", "What the process takes beyond that; negative if it takes less.", BYTES,
            Query(server("llama_memory_growth_bytes"), "{{kind}}"),
            width=8, bottom=None, runbooks=["LlamaMemoryCreeping"],
        ),
        graph(
            "Starts and kills",
            "Times that another process took the server's place, restarts by systemd among them, and processes killed "
            "for want of memory. systemd's are known of units whose journal can be read.",
            COUNT,
            Query(f"changes({started})", "starts"),
            Query(f"increase({server('llama_unit_restarts_total', window='$__rate_interval')})", "restarts by systemd"),
            Query(f"increase({server('llama_unit_oom_kills_total', window='$__rate_interval')})", "out of memory"),
            width=8, bars=True, overrides=[colored("out of memory", limits.RED)],
            runbooks=["LlamaServerCrashLooping", "LlamaServerOutOfMemory"],
        ),
    ]  # fmt: skip


def _group() -> list[Part]:
    pressure = server("llama_cgroup_memory_pressure_seconds_total", window="$__rate_interval")
    hits = server("llama_cgroup_memory_limit_hits_total", window="$__rate_interval")
    faults = server("llama_process_major_page_faults_total", window="$__rate_interval")
    return [
        graph(
            "Control group",
            "Memory of the server's control group: current with the page cache, anon, file (page cache), the peak "
            "since it was made, and its limit if it has one. Memory of a GPU's driver is not in it.",
            BYTES, Query(server("llama_cgroup_memory_bytes"), "{{kind}}"),
            overrides=[line("limit", limits.RED, dash=False)], runbooks=["LlamaServerOutOfMemory"],
        ),
        graph(
            "Weights read again from disk",
            "Page faults that read from disk. A rising rate means that weights are pushed out of memory and answers "
            "wait for the disk.",
            PER_SECOND, Query(f"rate({faults})", "major page faults"),
            limits=limits.MAJOR_FAULTS, runbooks=["LlamaWeightsReread"],
        ),
        graph(
            "Waiting for memory",
            "Part of the time in which at least one task of the control group (some), or all of them (full), waited "
            "for memory, and how often the group was at its limit. Needs control groups v2.",
            RATIO, Query(f"rate({pressure})", "{{kind}}"), Query(f"rate({hits})", "limit hits a second"), top=1,
            runbooks=["LlamaWeightsReread"],
        ),
    ]  # fmt: skip


def _gpu() -> list[Part]:
    each = "GPU {{gpu}}"
    return [
        graph(
            "Memory",
            "What this server holds, what is used by whomever, and what there is: of each GPU's own memory, or of the "
            "host's where a GPU shares it.",
            BYTES,
            Query(server("llama_gpu_process_memory_bytes"), f"this server on {each}"),
            Query(hosts("llama_gpu_memory_used_bytes"), f"used on {each}"),
            Query(hosts("llama_gpu_memory_total_bytes"), f"{each} has"),
            Query(hosts("llama_gpu_gtt_memory_used_bytes"), f"used of the host by {each}"),
            Query(hosts("llama_unified_memory_available_bytes"), "unified memory left"),
            Query(hosts("llama_unified_memory_total_bytes"), "unified memory"),
            width=9, runbooks=["LlamaGpuMemoryLow", "LlamaUnifiedMemoryLow"],
        ),
        graph(
            "Utilization", "Part of the time in which each GPU was busy.", RATIO,
            Query(hosts("llama_gpu_utilization_ratio"), each), width=5, top=1,
        ),
        graph(
            "Temperature", "Of each GPU.", CELSIUS, Query(hosts("llama_gpu_temperature_celsius"), each), width=5,
        ),
        graph(
            "Power", "Power that each GPU draws.", WATT, Query(hosts("llama_gpu_power_watts"), each), width=5,
        ),
    ]  # fmt: skip
