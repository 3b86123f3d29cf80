"""Reads all GPUs of the host in rounds. A driver that hangs costs its own numbers and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from kvexporter.aside import Aside
from kvexporter.facts import GpuReason, GpuReport, GpuSample
from kvexporter.gpu_memory import judge, unified_available
from kvexporter.sources.gpu_amd import AmdReader
from kvexporter.sources.gpu_nvidia import NvidiaReader, NvidiaReading
from kvexporter.sources.gpu_tegra import fill_in, tegra_gpu
from kvexporter.sources.host_memory import is_tegra, read_host_memory

log = logging.getLogger(__name__)

DEADLINE = 5.0
CLOSE_SECONDS = 2.0
NO_GPU = "there is no GPU here"
_NOTHING_TOLD: frozenset[GpuReason | None] = frozenset({"no_gpu", "no_library", "no_driver", "not_supported"})
"""On a Tegra these mean only that NVML tells nothing: its older systems have none."""


class GpuWorker:
    """`report` is that of the last round; `root` is where /proc and /sys are looked for."""

    def __init__(
        self, root: Path = Path("/"), deadline: float = DEADLINE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.report = GpuReport()
        self._root = root
        self._deadline = deadline
        self._nvidia = NvidiaReader(root, clock)
        self._amd = AmdReader(root)
        self._asking_nvidia: Aside[NvidiaReading] = Aside("reading NVIDIA's GPUs")
        self._asking_amd: Aside[list[GpuSample]] = Aside("reading AMD's GPUs")
        self._unified: tuple[GpuSample, ...] = ()
        """The GPUs that shared the host's memory when they last answered."""
        self._said: tuple[GpuReason | None, str] = (None, "")
        self._hanging = False
        self._closed = False

    async def read(self, pids: Iterable[int]) -> GpuReport:
        """One round, within the deadline: all GPUs and what the processes `pids` hold on them.

        What hangs is left out, and so is its result if it comes late: it is not of now.
        """
        wanted = tuple(pids)
        nvidia, amd = await asyncio.gather(self._read_nvidia(), self._read_amd(wanted))
        self.report = self._compose(nvidia, amd)
        self._say()
        return self.report

    async def aclose(self) -> None:
        """Shut NVML down, unless a call into it hangs: then that would hang too."""
        with contextlib.suppress(TimeoutError):
            # A round that is still under way comes first, and its result stands for that of the first attempt.
            for _ in range(2):
                if not self._hanging and not self._closed:
                    await self._asking_nvidia.call(self._shut_down, CLOSE_SECONDS)

    def _shut_down(self) -> NvidiaReading:
        self._nvidia.close()
        self._closed = True
        return NvidiaReading()

    async def _read_nvidia(self) -> NvidiaReading:
        try:
            reading = await self._asking_nvidia.call(self._nvidia.read, self._deadline)
        except TimeoutError as error:
            self._hanging = True
            return NvidiaReading(reason="hanging", detail=str(error))
        self._hanging = False
        return reading

    async def _read_amd(self, pids: tuple[int, ...]) -> list[GpuSample] | str:
        try:
            return await self._asking_amd.call(lambda: self._amd.read(pids), self._deadline)
        except TimeoutError as error:
            return str(error)
        except Exception as error:  # what is known of NVIDIA's must not grow old for it
            log.exception("AMD's GPUs cannot be read")
            return f"reading AMD's GPUs: unexpected {type(error).__name__}"

    def _compose(self, nvidia: NvidiaReading, amd: list[GpuSample] | str) -> GpuReport:
        host, tegra = read_host_memory(self._root), is_tegra(self._root)
        gpus = [judge(gpu, host, tegra) for gpu in nvidia.gpus]
        reason, detail = nvidia.reason, nvidia.detail
        if tegra:
            gpus = [fill_in(gpu, self._root) if gpu.unified else gpu for gpu in gpus]
            if not gpus and reason in _NOTHING_TOLD:
                gpus, reason, detail = [judge(tegra_gpu(self._root), host, tegra)], None, ""
        cards = [] if isinstance(amd, str) else amd
        if isinstance(amd, str):
            reason, detail = "hanging", amd
        elif reason == "no_gpu":
            reason, detail = (None, "") if cards else ("no_gpu", NO_GPU)
        gpus += cards
        silent = next((gpu for gpu in gpus if gpu.memory_reason is not None), None)
        if reason is None and silent is not None:
            reason, detail = silent.memory_reason, f"GPU {silent.index} ({silent.name}) does not tell its memory"
        if reason != "hanging":
            self._unified = tuple(gpu for gpu in gpus if gpu.unified)
        # The host's memory can be told while a GPU that shares it hangs: that is when it is wanted most.
        sharing = bool(self._unified)
        return GpuReport(
            gpus=tuple(gpus),
            reason=reason,
            detail=detail,
            unified_total=host.total if sharing else None,
            unified_available=unified_available(host, self._unified) if sharing else None,
            restart_wanted=nvidia.restart_wanted,
        )

    def _say(self) -> None:
        """Log what has changed."""
        reason = self.report.reason
        now = (reason, "" if reason == "hanging" else self.report.detail)  # one that hangs says so in several ways
        if now == self._said:
            return
        if self.report.reason is None:
            log.info("GPUs are read again")
        elif self.report.reason == "no_gpu":
            log.info("%s", self.report.detail)
        else:
            log.warning("GPU: %s", self.report.detail)
        self._said = now
