"""Snapshots for the live page: a recorded incident, and a fleet of fifty."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvexporter.pool_geometry import Geometry
from kvexporter.replay import replay_snapshots
from kvexporter.snapshot import ExporterSnapshot, IncidentSlot, PoolSnapshot, ServerSnapshot, SlotSnapshot
from tests.support.paths import RECORDINGS
from tests.support.snapshots import FOUR_AGENTS, FULL, exporter

INCIDENT = "replay-b11434-full"
INCIDENT_AT = 774.08
"""Seconds after the first line at which the requests died: the last line about it in server.log."""


def recorded(seconds: Iterable[float]) -> list[ExporterSnapshot]:
    """The recorded incident of four agents at these moments, as the exporter would have shown it."""
    return [snapshot for _, snapshot in replay_snapshots(RECORDINGS / INCIDENT, seconds)]


SPLIT = replace(
    FULL,
    name="split",
    unit="llama-split.service",
    requests_processing=1,
    requests_deferred=0,
    geometry=Geometry(slots=2, slot_context=8192, capacity=16384, shared=False, source="journal"),
    kv_cache_bytes=2684354560,
    slots=(SlotSnapshot(0, True, 4362, task=5, task_age=31.0, stalled=0.4), SlotSnapshot(1, False, 1738)),
    pool=PoolSnapshot(4362, 1738, 4362 / 16384, 6100 / 16384, 0.31),
    counters=replace(FULL.counters, incidents={}, requests_failed={}, suppressed_lines=0),
    last_incident=None,
    incidents=(),
    gpu_process_memory={"0": 9_000_000_000},
)
"""A pool that cannot run out, at work."""

DOWN = ServerSnapshot("down", unit="llama-down.service", state="down", up=False, geometry=FULL.geometry, has_log=True)
LOADING = replace(DOWN, name="loading", unit="llama-loading.service", state="loading", up=True)
ASLEEP = replace(SPLIT, name="asleep", state="sleeping", slots=(), pool=None, requests_processing=0)

OLD_INCIDENT = replace(FOUR_AGENTS, started=1789990000.0, ended=1789990001.5)
BUSY = replace(
    FULL,
    name="busy",
    pool=PoolSnapshot(100_000, 4096, 0.381, 0.397, 0.40, committed_tokens=120_000, committed_ratio=0.4578),
    slots=(SlotSnapshot(0, True, 60_000, task=1, task_age=8.0, stalled=0.1), SlotSnapshot(1, True, 40_000, task=2)),
    requests_deferred=0,
    counters=replace(FULL.counters, suppressed_lines=0),
    incidents=(OLD_INCIDENT, replace(OLD_INCIDENT, cause="slot", slots=(IncidentSlot(1, 9, 262144, 1.0),))),
    last_incident=OLD_INCIDENT,
    open_incident=None,
    pressure_at=None,
    cascade_since=None,
)
"""An overcommitted pool in which there is room now, with incidents of hours ago."""


def fleet(number: int = 50) -> ExporterSnapshot:
    """Servers of all kinds: every tenth down, every tenth after it with an incident, the others calm."""
    kinds = (
        DOWN,
        FULL,
        *(replace(each, name="x") for each in (SPLIT, BUSY, ASLEEP, SPLIT, LOADING, SPLIT, BUSY, SPLIT)),
    )
    servers = (replace(kinds[index % 10], name=f"gpu{index // 10}-{index % 10}") for index in range(number))
    return exporter(*servers)
