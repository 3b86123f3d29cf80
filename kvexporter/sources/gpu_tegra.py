"""The integrated GPU of a Tegra machine, from /sys: NVML tells little of it, or is not there at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kvexporter.facts import GpuSample
from kvexporter.sources.host_memory import machine_model
from kvexporter.sources.small_files import read_number, read_text

# Newer and older kernels place the device differently.
_LOAD = (
    "sys/devices/platform/gpu.0/load",
    "sys/devices/gpu.0/load",
    "sys/devices/platform/bus@0/*.gpu/load",
    "sys/devices/platform/*.gpu/load",
)
_ZONES = frozenset({"gpu-thermal", "gpu-therm", "gpu_therm"})


def tegra_gpu(root: Path = Path("/")) -> GpuSample:
    """The integrated GPU where NVML lists none; its memory is the host's."""
    name = machine_model(root) or "NVIDIA Tegra"
    return fill_in(GpuSample("0", "", name, "nvidia", memory_reason="not_supported"), root)


def fill_in(gpu: GpuSample, root: Path = Path("/")) -> GpuSample:
    """Add the utilization and temperature that NVML does not tell; what it tells stays."""
    utilization, temperature = gpu.utilization_ratio, gpu.temperature_celsius
    if utilization is None:
        load = next(_numbers(path for pattern in _LOAD for path in sorted(root.glob(pattern))), None)
        utilization = load / 1000 if load is not None else None  # per mille
    if temperature is None:
        zones = sorted(root.glob("sys/class/thermal/thermal_zone*"))
        ours = (zone / "temp" for zone in zones if (read_text(zone / "type") or "").lower() in _ZONES)
        milli = next(_numbers(ours), None)
        temperature = milli / 1000 if milli is not None else None
    return replace(gpu, utilization_ratio=utilization, temperature_celsius=temperature)


def _numbers(paths: Iterator[Path]) -> Iterator[int]:
    for path in paths:
        if (number := read_number(path)) is not None:
            yield number
