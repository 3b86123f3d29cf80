"""Definitions: the memory of the server's control group, and what a start took."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvexporter.facts import CgroupSample
from kvexporter.metrics.definition import MetricSection, Points, counter, gauge, one
from kvexporter.snapshot import ServerSnapshot

_CGROUP = "the control group of the server's process, v2 or v1, through /sys/fs/cgroup"
_NO_CGROUP = "while there is no such process on this host, and where its group cannot be seen or does not count memory"
_READY = "/proc of the server's process and its GPU memory, kept in the store over kvexporter's own restarts"
_NOT_READY = (
    "until the server was ready and its resident memory has not grown by more than 1 % for 10 s, and where kvexporter "
    "first saw its process more than 60 s after its start; kind gpu where GPU memory is not known"
)


def _known(pairs: Iterable[tuple[str, float | None]]) -> Points:
    return [((kind,), value) for kind, value in pairs if value is not None]


def _of_cgroup(read: Callable[[CgroupSample], Points]) -> Callable[[ServerSnapshot], Points]:
    return lambda server: () if server.cgroup is None else read(server.cgroup)


def _memory(group: CgroupSample) -> Points:
    return _known(
        (
            ("current", group.current_bytes),
            ("peak", group.peak_bytes),
            ("limit", group.limit_bytes),
            ("anon", group.anon_bytes),
            ("file", group.file_bytes),
        )
    )


def _pressure(group: CgroupSample) -> Points:
    return _known((("some", group.pressure_some_seconds), ("full", group.pressure_full_seconds)))


MEMORY = MetricSection(
    "Memory",
    "What the server's control group takes, and what a start of the server took and has taken since.",
    (
        gauge(
            "llama_cgroup_memory_bytes",
            _of_cgroup(_memory),
            "Memory of the server's control group with all that runs in it: current (page cache included), peak (since "
            "the group was made), limit (the least of the group's and its parents'), anon, and file (page cache). "
            "Memory that a GPU's driver takes is not in it.",
            unit="bytes",
            labels=("kind",),
            source=_CGROUP,
            absent=_NO_CGROUP + "; kind limit without a limit, kind peak before Linux 5.19",
        ),
        counter(
            "llama_cgroup_memory_pressure_seconds_total",
            _of_cgroup(_pressure),
            "Time in which tasks of the group waited for memory: some (at least one of them) and full (all of them).",
            unit="seconds",
            labels=("kind",),
            source="memory.pressure of the server's control group (v2, also beside v1)",
            absent=_NO_CGROUP + ", and on kernels without pressure stall information",
        ),
        counter(
            "llama_cgroup_oom_kills_total",
            one(lambda server: None if server.cgroup is None else server.cgroup.oom_kills),
            "Processes of the group that the kernel killed for want of memory, since the group was made: systemd makes "
            "a unit's anew at each start.",
            unit="kills",
            source=_CGROUP,
            absent=_NO_CGROUP,
        ),
        counter(
            "llama_cgroup_memory_limit_hits_total",
            one(lambda server: None if server.cgroup is None else server.cgroup.limit_hits),
            "Times that the group was at its limit and nothing could be given back, since the group was made.",
            unit="hits",
            source="memory.events of the server's control group (v2)",
            absent=_NO_CGROUP + ", and with v1",
        ),
        gauge(
            "llama_memory_at_ready_bytes",
            lambda server: _known(server.memory_at_ready.items()),
            "Memory of the server's process once it was ready and had settled after its start: resident, anon (the KV "
            "cache when it is in RAM, and other buffers) and gpu (on all GPUs). `kvexporter check` compares the last "
            "two starts.",
            unit="bytes",
            labels=("kind",),
            source=_READY,
            absent=_NOT_READY,
        ),
        gauge(
            "llama_memory_growth_bytes",
            lambda server: _known(server.memory_growth.items()),
            "Memory that the process takes now beyond llama_memory_at_ready_bytes; negative if it takes less. Saved "
            "prompts (--cache-ram) make anon grow.",
            unit="bytes",
            labels=("kind",),
            source=_READY,
            absent=_NOT_READY,
        ),
    ),
)
