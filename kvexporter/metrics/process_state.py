"""Definitions: the llama-server's process and its unit."""

from __future__ import annotations

from collections.abc import Callable

from kvexporter.facts import ProcessSample
from kvexporter.metrics.definition import MetricSection, Points, counter, gauge, one
from kvexporter.snapshot import ServerSnapshot

_PROC = "/proc of the llama-server's process, found by its log or by discovery"
_GONE = "while there is no such process on this host"
_SYSTEMD = "systemd's messages about the unit in the journal"
_NO_UNIT = "where the server is no unit, or its journal cannot be read"


def _of_process(read: Callable[[ProcessSample], float | None]) -> Callable[[ServerSnapshot], Points]:
    return one(lambda server: None if server.process is None else read(server.process))


def _memory(server: ServerSnapshot) -> Points:
    process = server.process
    if process is None:
        return ()
    kinds = (
        ("anon", process.anon_bytes),
        ("file", process.file_bytes),
        ("shmem", process.shmem_bytes),
        ("swap", process.swap_bytes),
    )
    return [((kind,), size) for kind, size in kinds if size is not None]


def _stopped(server: ServerSnapshot) -> float | None:
    stopped = server.life.stopped_on_request
    return None if stopped is None else int(stopped)


def _exits(server: ServerSnapshot) -> Points:
    return [((code,), count) for code, count in server.counters.unit_exits.items()]


PROCESS = MetricSection(
    "Process",
    "The llama-server's own process, followed over restarts. (`process_…` without the prefix `llama_` is kvexporter.)",
    (
        gauge(
            "llama_process_resident_memory_bytes",
            _of_process(lambda process: process.resident_bytes),
            "Memory of the process in RAM. Weights that are mapped from files count in it as far as they are in the "
            "page cache, and memory on a GPU does not.",
            unit="bytes",
            source=_PROC,
            absent=_GONE,
        ),
        gauge(
            "llama_process_memory_bytes",
            _memory,
            "Memory of the process by kind: anon (the KV cache when it is in RAM, and other buffers), file (weights "
            "mapped from files), shmem, and swap (not in RAM).",
            unit="bytes",
            labels=("kind",),
            source=_PROC,
            absent=_GONE,
        ),
        counter(
            "llama_process_cpu_seconds_total",
            _of_process(lambda process: process.cpu_seconds),
            "CPU time that the process has used, user and system.",
            unit="seconds",
            source=_PROC,
            absent=_GONE,
        ),
        counter(
            "llama_process_major_page_faults_total",
            _of_process(lambda process: process.major_faults),
            "Page faults that had to read from disk: a rising rate means that weights are pushed out of memory.",
            unit="faults",
            source=_PROC,
            absent=_GONE,
        ),
        gauge(
            "llama_process_open_fds",
            _of_process(lambda process: process.open_fds),
            "Open file descriptors of the process.",
            unit="descriptors",
            source=_PROC,
            absent=_GONE + ", and without permission to look (another user's process)",
        ),
        gauge(
            "llama_process_start_time_seconds",
            _of_process(lambda process: process.start_time),
            "When the process started, in unix seconds.",
            unit="seconds",
            source=_PROC,
            absent=_GONE,
        ),
        gauge(
            "llama_unit_stopped_on_request",
            one(_stopped),
            "1 while the unit is stopped because systemd was asked to stop it (by systemctl, a shutdown, or a unit "
            "that it depends on), until it is started again; 0 otherwise, and so after a crash, a kill, an end by "
            "itself or a start that failed.",
            unit="boolean",
            source=_SYSTEMD,
            absent=_NO_UNIT + ", and before the first of these messages",
        ),
        counter(
            "llama_unit_restarts_total",
            one(lambda server: server.counters.unit_restarts),
            "Times that systemd restarted the unit by itself.",
            unit="restarts",
            source=_SYSTEMD,
            absent=_NO_UNIT,
        ),
        counter(
            "llama_unit_exits_total",
            _exits,
            "Times that the unit's main process ended in failure, by exit status or by the signal that killed it.",
            unit="exits",
            labels=("code",),
            source=_SYSTEMD,
            absent=_NO_UNIT + ", and before the first exit with that code",
        ),
        counter(
            "llama_unit_oom_kills_total",
            one(lambda server: server.counters.oom_kills),
            "Times that a process of the unit was killed for want of memory.",
            unit="kills",
            source=_SYSTEMD,
            absent=_NO_UNIT,
        ),
    ),
)
