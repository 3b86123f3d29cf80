"""One NVIDIA GPU asked through NVML. What it does not tell is None; troubles are collected, not raised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvexporter.facts import GpuReason, GpuSample

# NVML's return codes, which are part of its interface.
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
FUNCTION_NOT_FOUND = 13
REASONS: dict[int, GpuReason] = {
    NOT_SUPPORTED: "not_supported",
    NO_PERMISSION: "no_permission",
    9: "no_driver",
    12: "no_library",
    15: "lost",
    16: "lost",  # it must be reset first
    18: "mismatch",
    28: "lost",  # no GPUs were found
}
LIFECYCLE = frozenset({1, 9, 10, 11, 15, 16, 17, 18, 28, 999})
"""Codes after which NVML may only work again once it has been initialised anew."""
SURELY_LIFECYCLE = LIFECYCLE - {10, 11, 17, 999}
"""Those that mean it whatever was asked: some cards answer power with an unknown error all their life."""


@dataclass(slots=True)
class Troubles:
    """What went wrong in one round."""

    reason: GpuReason | None = None
    detail: str = ""
    """Of the first trouble."""
    lifecycle: bool = field(default=False)

    def add(self, reason: GpuReason, detail: str) -> None:
        if self.reason is None:
            self.reason, self.detail = reason, detail

    def error(self, what: str, error: Any) -> None:
        """Take note of an NVMLError."""
        self.lifecycle = self.lifecycle or error.value in LIFECYCLE
        self.add(REASONS.get(error.value, "failed"), f"{what}: {describe(error)}")

    def optional(self, what: str, error: Any) -> None:
        """Take note of an error of a question that many GPUs do not answer: only what concerns all of NVML counts."""
        if error.value in SURELY_LIFECYCLE:
            self.error(what, error)


def describe(error: Any) -> str:
    """NVML's own words and number."""
    return f"{error} (NVML {error.value})"


class NvmlDevice:
    """Asks one handle of the pynvml module `nvml`."""

    def __init__(self, nvml: Any, handle: Any, index: str, troubles: Troubles) -> None:
        self._nvml = nvml
        self._handle = handle
        self._index = index
        self._troubles = troubles

    def read(self) -> list[GpuSample]:
        """The GPU, and after it its slices if it is cut into any."""
        slices = self._slices()
        # A cut GPU's memory is its slices': it would count twice, and asking for it takes a privilege.
        gpu = self._whole(sliced=slices is not None)
        return [gpu, *(slices or ())]

    def _whole(self, sliced: bool) -> GpuSample:
        nvml, handle = self._nvml, self._handle
        utilization = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        temperature = self._ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        milliwatts = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        total, used, reason = (None, None, None) if sliced else self._memory(handle, f"GPU {self._index}")
        return GpuSample(
            index=self._index,
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            name=self._name(handle),
            vendor="nvidia",
            memory_total=total,
            memory_used=used,
            memory_reason=reason,
            utilization_ratio=utilization / 100 if utilization is not None else None,
            temperature_celsius=temperature,
            power_watts=milliwatts / 1000 if milliwatts is not None else None,
            processes=None if sliced else self._processes(handle),
            sliced=sliced,
        )

    def _slices(self) -> list[GpuSample] | None:
        """The MIG devices; None when the GPU is not cut."""
        nvml, handle = self._nvml, self._handle
        mode = self._ask(lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
        if mode != nvml.NVML_DEVICE_MIG_ENABLE:
            return None
        found = []
        for number in range(self._ask(lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
            try:
                part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            except nvml.NVMLError as error:
                if error.value != NOT_FOUND:  # places may be empty
                    self._troubles.error(f"slice {number} of GPU {self._index}", error)
                continue
            found.append(self._slice(part, number))
        return found

    def _slice(self, part: Any, number: int) -> GpuSample:
        index = f"{self._index}:{number}"
        total, used, reason = self._memory(part, f"slice {number} of GPU {self._index}")
        return GpuSample(
            index=index,
            uuid=_text(self._nvml.nvmlDeviceGetUUID(part)),
            name=self._name(part),
            vendor="nvidia",
            memory_total=total,
            memory_used=used,
            memory_reason=reason,
            processes=self._processes(part),
            slice_of=self._index,
        )

    def _memory(self, handle: Any, what: str) -> tuple[int | None, int | None, GpuReason | None]:
        """Total, used and why not. The question's second version does not count what the driver keeps for itself."""
        nvml = self._nvml
        try:
            try:
                memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
            except nvml.NVMLError as error:
                if error.value not in (FUNCTION_NOT_FOUND, NOT_SUPPORTED):
                    raise
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:
            if error.value == NOT_SUPPORTED:
                return None, None, "not_supported"  # with unified memory it is no trouble: not ours to decide
            self._troubles.error(f"memory of {what}", error)
            return None, None, REASONS.get(error.value, "failed")
        return int(memory.total), int(memory.used), None

    def _processes(self, handle: Any) -> dict[int, int | None] | None:
        """Process → bytes; programs that compute with Vulkan count as graphics, and some are in both lists."""
        nvml = self._nvml
        lists = [
            self._ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
            self._ask(lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)),
        ]
        if lists[0] is None and not lists[1]:
            return None
        held: dict[int, int | None] = {}
        for process in (process for found in lists if found is not None for process in found):
            size, known = process.usedGpuMemory, held.get(process.pid)
            held[int(process.pid)] = known if size is None else max(int(size), known or 0)
        return held

    def _name(self, handle: Any) -> str:
        name = self._ask(lambda: self._nvml.nvmlDeviceGetName(handle))
        return _text(name) if name is not None else ""

    def _ask(self, question: Callable[[], Any]) -> Any:
        """The answer; None if this GPU has none."""
        nvml = self._nvml
        for attempt in (1, 2):
            try:
                return question()
            except nvml.NVMLError as error:
                if error.value == INSUFFICIENT_SIZE and attempt == 1:
                    continue  # processes came between asking how many there are and asking for them
                self._troubles.optional(f"GPU {self._index}", error)
                break
        return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
