"""Definitions: GPUs, and the memory that they share with the host."""

from __future__ import annotations

from collections.abc import Callable

from kvexporter.facts import GpuSample
from kvexporter.metrics.definition import Metric, MetricSection, Points, ReadExporter, gauge, own
from kvexporter.snapshot import ExporterSnapshot, ServerSnapshot

_DRIVERS = "NVML for NVIDIA, /sys of the amdgpu driver for AMD"
_NOT_TOLD = "where the driver does not tell it, and while the GPU cannot be read"
_LABELS = ("gpu", "uuid", "name")


def _of_gpus(read: Callable[[GpuSample], float | None]) -> ReadExporter:
    """Read one number of each GPU; None is absent."""

    def points(snapshot: ExporterSnapshot) -> Points:
        return [((gpu.index, gpu.uuid, gpu.name), value) for gpu in snapshot.gpus if (value := read(gpu)) is not None]

    return points


def _of_gpu(
    name: str, read: Callable[[GpuSample], float | None], meaning: str, *, unit: str, source: str, absent: str
) -> Metric:
    return own(
        name, "gauge", _of_gpus(read), meaning, unit=unit, labels=_LABELS, source=source, absent=absent
    )  # fmt: skip


def _of_host(read: Callable[[ExporterSnapshot], int | None]) -> ReadExporter:
    def points(snapshot: ExporterSnapshot) -> Points:
        value = read(snapshot)
        return () if value is None else (((), value),)

    return points


def _process_memory(server: ServerSnapshot) -> Points:
    return [((gpu,), size) for gpu, size in server.gpu_process_memory.items()]


GPU = MetricSection(
    "GPUs and unified memory",
    "Of the host, not of one server. `gpu` is NVML's index (`0`; `0:1` for slice 1 of GPU 0 under MIG) or AMD's DRM "
    "card (`card0`), and may shift; `uuid` stays. A GPU that MIG has cut shows its memory by slice only. On a GPU with "
    "unified memory `llama_unified_memory_…` tells what there is, and nothing of it counts twice.",
    (
        _of_gpu(
            "llama_gpu_memory_total_bytes",
            lambda gpu: gpu.memory_total,
            "The GPU's own memory. For an APU of AMD it is the part that the firmware has set aside.",
            unit="bytes",
            source=_DRIVERS,
            absent="where the GPU uses the host's memory (llama_unified_memory_total_bytes), and " + _NOT_TOLD,
        ),
        _of_gpu(
            "llama_gpu_memory_used_bytes",
            lambda gpu: gpu.memory_used,
            "Memory of the GPU in use, by whomever, without what NVIDIA's driver keeps for itself. Where an NVIDIA GPU "
            "uses the host's memory: what its processes hold together, as far as that is told.",
            unit="bytes",
            source=_DRIVERS,
            absent=_NOT_TOLD,
        ),
        gauge(
            "llama_gpu_process_memory_bytes",
            _process_memory,
            "Memory that the server's process holds on the GPU; for an APU of AMD in both its parts. It is not part of "
            "the process's resident memory, nor of its control group. CUDA's managed memory does not count.",
            unit="bytes",
            labels=("gpu",),
            source="NVML's lists of processes; for AMD the process's DRM clients (/proc/PID/fdinfo)",
            absent="where the process holds none, where the driver does not tell, in another PID namespace than the "
            "host's, and for AMD without permission to look (another user's process)",
        ),
        _of_gpu(
            "llama_gpu_gtt_memory_total_bytes",
            lambda gpu: gpu.gtt_total,
            "Memory of the host that an AMD GPU may use. An APU keeps models here.",
            unit="bytes",
            source="/sys of the amdgpu driver",
            absent="for other GPUs",
        ),
        _of_gpu(
            "llama_gpu_gtt_memory_used_bytes",
            lambda gpu: gpu.gtt_used,
            "Memory of the host that an AMD GPU uses now.",
            unit="bytes",
            source="/sys of the amdgpu driver",
            absent="for other GPUs",
        ),
        _of_gpu(
            "llama_gpu_utilization_ratio",
            lambda gpu: gpu.utilization_ratio,
            "Part of the time in which the GPU was busy, as its driver samples it.",
            unit="ratio",
            source=_DRIVERS + "; /sys for Tegra",
            absent=_NOT_TOLD + ", under MIG, and while an AMD card sleeps",
        ),
        _of_gpu(
            "llama_gpu_temperature_celsius",
            lambda gpu: gpu.temperature_celsius,
            "Temperature of the GPU.",
            unit="°C",
            source=_DRIVERS + "; /sys for Tegra",
            absent=_NOT_TOLD + ", and while an AMD card sleeps",
        ),
        _of_gpu(
            "llama_gpu_power_watts",
            lambda gpu: gpu.power_watts,
            "Power that the GPU draws.",
            unit="watts",
            source=_DRIVERS,
            absent=_NOT_TOLD + ", and while an AMD card sleeps",
        ),
        _of_gpu(
            "llama_gpu_unified_memory",
            lambda gpu: None if gpu.unified is None else int(gpu.unified),
            "1 if the GPU uses the host's memory, so that KV cache, weights and everything else on the host compete; 0 "
            "if it has its own.",
            unit="boolean",
            source="NVML's answers with the GPU's name and the device tree; for AMD the driver's own tables",
            absent="where that is not certain",
        ),
        own(
            "llama_unified_memory_total_bytes",
            "gauge",
            _of_host(lambda snapshot: snapshot.unified_memory_total),
            "Memory of the host that a GPU shares.",
            unit="bytes",
            source="MemTotal of /proc/meminfo",
            absent="without a GPU that is known to share it",
        ),
        own(
            "llama_unified_memory_available_bytes",
            "gauge",
            _of_host(lambda snapshot: snapshot.unified_memory_available),
            "Memory that a GPU which shares the host's can still get, as NVIDIA documents it: where huge pages are set "
            "up the free ones, else available memory and free swap, so that it can exceed the total. For AMD "
            "available memory alone.",
            unit="bytes",
            source="/proc/meminfo",
            absent="without a GPU that is known to share it",
        ),
    ),
)
