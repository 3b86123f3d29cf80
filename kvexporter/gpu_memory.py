"""Whose memory a GPU's memory is: its own, or the host's. Pure.

Where GPU and CPU share one memory NVML answers in several ways: the question is not supported (GB10, Jetson), or the
answer is the host's total, or 0. A discrete card can answer the same way when something is wrong with it, so
the answer alone proves nothing: there must be evidence that does not come from the failed question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from kvexporter.facts import GpuSample, HostMemory

INTEGRATED = re.compile(r"\b(?:GB10|Thor|Orin|Xavier|Tegra)\b|\(nvgpu\)", re.IGNORECASE)
"""Names of NVIDIA GPUs that have no memory of their own."""

DISCRETE = re.compile(r"\b(?:RTX|GTX|GeForce|Quadro|Tesla)\b", re.IGNORECASE)
"""Cards that may be plugged into a Tegra machine (IGX)."""

NEAR = 0.1
"""A total this close to the host's, as a ratio, may be the host's."""


def judge(gpu: GpuSample, host: HostMemory, tegra: bool) -> GpuSample:
    """Decide whether an NVIDIA GPU shares the host's memory, and leave in its memory only what is its own.

    A GPU with unified memory has no total, for that is the host's; used is what its processes hold. Figures of a
    process beyond the host's memory are dropped: some Jetsons list processes that do not exist. `tegra`: the host is a
    Tegra by its device tree.
    """
    unified = is_unified(gpu, host, tegra)
    if not unified:
        return replace(gpu, unified=unified)
    processes = gpu.processes
    if processes is not None and host.total is not None:
        most = host.total
        processes = {pid: size if size is not None and size <= most else None for pid, size in processes.items()}
    return replace(
        gpu, unified=True, processes=processes, memory_total=None, memory_used=_sum(processes), memory_reason=None
    )


def is_unified(gpu: GpuSample, host: HostMemory, tegra: bool) -> bool | None:
    """Whether a GPU shares the host's memory; None when that cannot be known."""
    if gpu.sliced or gpu.slice_of is not None:
        return False  # only cards with their own memory can be cut
    evidence = _is_integrated(gpu.name, tegra)
    if gpu.memory_reason == "not_supported" or (gpu.memory_reason is None and gpu.memory_total == 0):
        return True if evidence else None
    if gpu.memory_reason is not None or gpu.memory_total is None:
        return None  # lost, no permission, failed: says nothing about the memory
    if host.total is None or abs(gpu.memory_total - host.total) > NEAR * host.total:
        return False
    # A card with as much memory as its host is nothing special; exactly the host's total, to the byte, is the host's.
    return evidence or gpu.memory_total == host.total


def unified_available(host: HostMemory, gpus: Iterable[GpuSample]) -> int | None:
    """Memory that a GPU of this host can still get.

    For NVIDIA's as NVIDIA documents it: free huge pages where huge pages are set up, else MemAvailable and free swap.
    It can be more than the total, as swap is no part of that. For AMD's, of which nothing of the kind is documented,
    MemAvailable.
    """
    if all(gpu.vendor != "nvidia" for gpu in gpus if gpu.unified):
        return host.available
    if host.huge_pages:
        if host.huge_pages_free is None or host.huge_page_bytes is None:
            return None
        return host.huge_pages_free * host.huge_page_bytes
    return None if host.available is None else host.available + (host.swap_free or 0)


def process_memory(gpus: Iterable[GpuSample], pid: int, visible: frozenset[str] | None) -> dict[str, int]:
    """Bytes that a process holds, by the GPU's index; a GPU that does not list it is left out.

    `visible`: the GPUs that CUDA lets it use, None where that is not known. On any other an entry with its number is
    another process's, in a PID namespace that is not ours.
    """
    held = {}
    for gpu in gpus:
        size = gpu.processes.get(pid) if gpu.processes is not None else None
        if size is not None and (visible is None or gpu.vendor != "nvidia" or gpu.index in visible):
            held[gpu.index] = size
    return held


def _is_integrated(name: str, tegra: bool) -> bool:
    return INTEGRATED.search(name) is not None or (tegra and DISCRETE.search(name) is None)


def _sum(processes: dict[int, int | None] | None) -> int | None:
    """What all processes hold; None when it is told of none of them."""
    if processes is None:
        return None
    told = [size for size in processes.values() if size is not None]
    return sum(told) if told or not processes else None
