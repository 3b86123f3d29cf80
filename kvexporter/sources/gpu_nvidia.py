"""NVIDIA's GPUs through NVML: initialised once for the life of the process, and again only after an error that ends it.

Initialising wakes GPUs and can take seconds. The calls can hang in the driver for ever: they are to be made aside.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvexporter.facts import GpuReason, GpuSample
from kvexporter.sources.nvml_device import REASONS, NvmlDevice, Troubles, describe
from kvexporter.sources.nvml_library import NoNvmlError, NvmlLibrary

FIRST_RETRY = 5.0
LAST_RETRY = 60.0
"""Seconds between attempts to initialise, doubled from the first to the last."""
MAX_GPUS = 64


@dataclass(frozen=True, slots=True)
class NvidiaReading:
    """What NVML told in one round."""

    gpus: tuple[GpuSample, ...] = ()
    reason: GpuReason | None = None
    detail: str = ""
    restart_wanted: bool = False
    """Only a new process can load the library of the driver that runs now."""


class NvidiaReader:
    """Not for several threads at a time. `clock` gives monotonic seconds."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._library = NvmlLibrary(root)
        self._clock = clock
        self._nvml: Any = None
        """The module, while NVML is initialised."""
        self._failure = NvidiaReading()
        self._troubled = False
        self._retry_at = 0.0
        self._pause = FIRST_RETRY
        self._seen: dict[str, str] = {}
        """UUID → index of all GPUs that there ever were: one that has gone may simply not be counted any more."""

    def read(self) -> NvidiaReading:
        """Ask all GPUs; never raises. Takes as long as the driver does."""
        try:
            return self._read()
        except Exception as error:  # a foreign library: whatever it does must not end the rounds
            self._later()
            return NvidiaReading(reason="failed", detail=f"NVML: unexpected {type(error).__name__}: {error}")

    def close(self) -> None:
        """Shut NVML down, if it is initialised."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError):  # it was gone already
                nvml.nvmlShutdown()

    def _read(self) -> NvidiaReading:
        if self._troubled and self._clock() >= self._retry_at:
            self.close()
        if self._nvml is None:
            if self._clock() < self._retry_at:
                return self._failure
            failure = self._initialise()
            if failure is not None:
                self._failure = failure
                self._later()
                return failure
        troubles = Troubles()
        gpus = self._round(troubles)
        if not troubles.lifecycle:
            self._troubled, self._pause = False, FIRST_RETRY
        elif not self._troubled:
            self._later()
        return NvidiaReading(tuple(gpus), troubles.reason, troubles.detail)

    def _later(self) -> None:
        self._troubled = True
        self._retry_at = self._clock() + self._pause
        self._pause = min(2 * self._pause, LAST_RETRY)

    def _initialise(self) -> NvidiaReading | None:
        """None when it worked."""
        try:
            nvml = self._library.load()
        except NoNvmlError as problem:
            return NvidiaReading(reason=problem.reason, detail=problem.detail)
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            reason: GpuReason = REASONS.get(error.value, "failed")
            outdated = reason == "mismatch" and self._library.outdated()
            detail = f"NVML cannot be initialised: {describe(error)}"
            if outdated:
                detail = "the driver was replaced, and only a new process can load its new library"
            return NvidiaReading(reason=reason, detail=detail, restart_wanted=outdated)
        self._nvml = nvml
        self._troubled = False
        return None

    def _round(self, troubles: Troubles) -> list[GpuSample]:
        nvml = self._nvml
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            troubles.error("the number of GPUs", error)
            return []
        found: list[GpuSample] = []
        for number in range(min(count, MAX_GPUS)):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                found += NvmlDevice(nvml, handle, str(number), troubles).read()
            except nvml.NVMLError as error:
                troubles.error(f"GPU {number}", error)
        present = {gpu.uuid: gpu.index for gpu in found if gpu.slice_of is None}
        missing = [index for uuid, index in self._seen.items() if uuid not in present]
        self._seen.update(present)
        if missing and troubles.reason is None:
            troubles.add("lost", f"GPU {', '.join(missing)} is gone")
            troubles.lifecycle = True
        if not found:
            troubles.add("lost", "the driver lists no GPU")
            troubles.lifecycle = True
        return [_without_memory(gpu) if gpu.memory_reason == "lost" else gpu for gpu in found]


def _without_memory(gpu: GpuSample) -> GpuSample:
    """A lost GPU: whatever its driver still tells is not of now."""
    return replace(gpu, utilization_ratio=None, temperature_celsius=None, power_watts=None, processes=None)
