"""Snapshots made by hand, with values chosen so that every series can be told apart."""

from __future__ import annotations

from math import inf

from kvexporter.facts import CgroupSample, GpuSample, ProcessSample
from kvexporter.pool_geometry import Geometry
from kvexporter.snapshot import (
    CollectorStatus,
    Counters,
    ExporterSnapshot,
    HistogramSnapshot,
    Incident,
    IncidentSlot,
    PoolSnapshot,
    ServerSnapshot,
    SlotSnapshot,
    UpstreamCounters,
)

# The incident of the four agents: 159,069 + 23,428 + 77,417 + 2,949 = 262,863 = 262,144 + 719.
FOUR_AGENTS = Incident(
    cause="pool",
    started=1790000000.25,
    ended=1790000001.5,
    slots=(
        IncidentSlot(0, 11, 159069, 0.607),
        IncidentSlot(1, 12, 23428, 0.089),
        IncidentSlot(2, 13, 77417, 0.295),
        IncidentSlot(3, 14, 2949, 0.011),
    ),
    requests_failed=4,
    capacity=262144,
    sum_tokens=262863,
    excess_tokens=719,
    unplaced_batch_tokens=719,
    adds_up=True,
    biggest_slot=0,
)

FULL = ServerSnapshot(
    name="main",
    unit="llama-server.service",
    url="http://127.0.0.1:8080",
    model="qwen.gguf",
    build="b11434",
    up=True,
    state="ready",
    requests_processing=2,
    requests_deferred=1,
    geometry=Geometry(slots=4, slot_context=262144, capacity=262144, shared=True, source="journal"),
    kv_cache_bytes=42949672960,
    kv_bytes_per_token=163840.0,
    kv_bytes_source="journal",
    kv_header_bytes_per_token=131072.0,
    slots=(
        SlotSnapshot(0, True, 131072, task=21, task_age=12.5, stalled=0.5),
        SlotSnapshot(1, True, 65536, task=22, task_age=3.0, stalled=0.0),
        SlotSnapshot(2, False, 4096),
        SlotSnapshot(3, False, None),
    ),
    pool=PoolSnapshot(
        processing_tokens=196608,
        idle_tokens=4096,
        fill_ratio=0.75,
        resident_ratio=0.765625,
        fill_peak_ratio=0.875,
        committed_tokens=229376,
        committed_ratio=0.875,
        demand_tokens=294912,
        demand_ratio=1.125,
        seconds_to_full=412.5,
    ),
    fill_seconds=HistogramSnapshot(((0.5, 10.9), (1.0, 14.9), (inf, 15.2)), 9.25),
    counters=Counters(
        incidents={"pool": 1},
        requests_failed={"pool": 4},
        error_lines=6,
        pressure_lines=21,
        recoveries=2,
        purges=3,
        purged_tokens=919,
        context_shifts=5,
        answers_truncated=7,
        requests_cancelled=8,
        http_requests={("/v1/chat/completions", "200"): 30, ("/v1/chat/completions", "500"): 4},
        unit_restarts=24,
        unit_exits={"127": 24, "KILL": 1},
        oom_kills=1,
        suppressed_lines=17,
    ),
    has_log=True,
    last_incident=FOUR_AGENTS,
    incidents=(FOUR_AGENTS,),
    request_tokens=HistogramSnapshot(((1024.0, 3.0), (1048576.0, 9.0), (inf, 9.0)), 400000.0),
    request_prompt_tokens=HistogramSnapshot(((1024.0, 4.0), (inf, 8.0)), 350000.0),
    prompt_speed=HistogramSnapshot(((100.0, 1.0), (inf, 2.0)), 350.5),
    generation_speed=HistogramSnapshot(((10.0, 2.0), (inf, 2.0)), 15.25),
    upstream=UpstreamCounters(1423150.0, 5000.0, 700.5, 82000.0, 9000.25, 83000.0, 207.0, 182.0),
    process=ProcessSample(
        pid=4242,
        start_time=1789990000.25,
        cpu_seconds=3600.5,
        resident_bytes=65255407616,
        anon_bytes=45000000000,
        file_bytes=20255407616,
        shmem_bytes=0,
        swap_bytes=None,
        major_faults=99,
        open_fds=41,
    ),
    cgroup=CgroupSample(
        current_bytes=66000000000,
        peak_bytes=67000000000,
        limit_bytes=96000000000,
        anon_bytes=45500000000,
        file_bytes=20400000000,
        limit_hits=5,
        oom_kills=2,
        pressure_some_seconds=12.5,
        pressure_full_seconds=3.25,
    ),
    gpu_process_memory={"0": 13199000000},
    memory_at_ready={"resident": 65000000000, "anon": 44800000000, "gpu": 13200000000},
    memory_growth={"resident": 255407616, "anon": 200000000, "gpu": -1000000},
    last_poll={"slots": 1790000100.125, "metrics": 1790000100.25},
    poll_failures={("slots", "timeout"): 2, ("metrics", "unsupported"): 1},
)

UNKNOWN = ServerSnapshot(name="far")
"""A server of which nothing is known yet."""

HOSTILE = ServerSnapshot(
    name='a"b\\c\nd',
    model="Modèl 模型 \udcff",
    slots=(SlotSnapshot(0, False, 0),),
    state="sleeping",
)
"""Names that need escaping."""


def exporter(*servers: ServerSnapshot) -> ExporterSnapshot:
    """The servers in an exporter with all its own numbers known."""
    return ExporterSnapshot(
        at=1790000101.0,
        servers=servers,
        collectors={
            "journal": CollectorStatus(True, 0.015625),
            "process": CollectorStatus(False, 0.25, "permission denied"),
        },
        journal_lines={"matched": 900, "ignored": 8000, "malformed": 3},
        journal_lag=0.375,
        config_reload_successful=True,
        config_reload_time=1789990001.0,
        store_errors=2,
        journal_gaps=3,
        gpus=(
            GpuSample(
                index="0",
                uuid="GPU-aaaa",
                name="NVIDIA GeForce RTX 4090",
                vendor="nvidia",
                memory_total=25757220864,
                memory_used=13600000000,
                unified=False,
                utilization_ratio=0.87,
                temperature_celsius=61,
                power_watts=312.5,
            ),
            GpuSample(
                index="card1",
                uuid="0000:c4:00.0",
                name="AMD GPU 1586",
                vendor="amd",
                memory_total=536870912,
                memory_used=0,
                unified=True,
                utilization_ratio=0.0,
                gtt_total=133143986176,
                gtt_used=75161927680,
            ),
            GpuSample(index="2", uuid="", name="", vendor="nvidia", memory_reason="lost"),
        ),
        unified_memory_total=134144000000,
        unified_memory_available=46080000000,
        alerts_sent={"am1:9093": 12, "am2:9093": 0},
        alert_send_failures={"am1:9093": 0, "am2:9093": 4},
        webhook_alerts_sent={"pager": 2},
        webhook_failures={"pager": 1},
    )
