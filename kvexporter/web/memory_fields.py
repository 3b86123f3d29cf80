"""A server's memory as one bar: what the whole is, and the parts that add up to it. Pure.

What a driver says and what /proc says of a process are never added into one part: they stand side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from kvexporter.facts import GpuSample, ProcessSample
from kvexporter.snapshot import ExporterSnapshot, ServerSnapshot
from kvexporter.web.amounts import size

Kind = Literal["server", "files", "swap", "other", "free"]
"""server: its own; files: mapped files, which can be given back; other: other programs and the driver."""


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of the bar."""

    kind: Kind
    name: str
    bytes: int


def memory_fields(server: ServerSnapshot, host: ExporterSnapshot) -> dict[str, object] | None:
    """Give the memory that matters for the server: its GPUs', the host's where they share it, or its group's limit."""
    for found in (_gpus(server, host.gpus), _unified(server, host), _limited(server), _alone(server)):
        if found is not None:
            return found
    return None


def _gpus(server: ServerSnapshot, gpus: Iterable[GpuSample]) -> dict[str, object] | None:
    used = [gpu for gpu in gpus if gpu.index in server.gpu_process_memory and gpu.unified is not True]
    if not used:
        return None
    total, taken = _sum(gpu.memory_total for gpu in used), _sum(gpu.memory_used for gpu in used)
    own = sum(server.gpu_process_memory[gpu.index] for gpu in used)
    if total is None:
        return None
    names = ", ".join(dict.fromkeys(gpu.name or f"GPU {gpu.index}" for gpu in used))
    parts = [Part("server", "this server", own)]
    if taken is not None:
        parts.append(Part("other", "others", max(0, taken - own)))
    return _fields(f"GPU memory ({names})", total, parts)


def _unified(server: ServerSnapshot, host: ExporterSnapshot) -> dict[str, object] | None:
    total, available = host.unified_memory_total, host.unified_memory_available
    if total is None or (server.process is None and not server.gpu_process_memory):
        return None
    parts = [Part("server", "this server, by the GPU's driver", sum(server.gpu_process_memory.values()))]
    parts += _own(server.process)
    if available is not None:
        # Mapped files can be given back, so they are part of what is available.
        held = sum(part.bytes for part in parts if part.kind == "server")
        parts = [part for part in parts if part.kind == "server"]
        parts.append(Part("other", "others", max(0, total - min(available, total) - held)))
    return _fields("the host's memory, which its GPU shares", total, parts)


def _limited(server: ServerSnapshot) -> dict[str, object] | None:
    group = server.cgroup
    if group is None or group.limit_bytes is None:
        return None
    parts = [Part("server", "its own", group.anon_bytes)] if group.anon_bytes is not None else []
    parts += [Part("files", "files, can be given back", group.file_bytes)] if group.file_bytes is not None else []
    told = sum(part.bytes for part in parts)
    parts.append(Part("other", "other", max(0, group.current_bytes - told)))
    return _fields("memory of its control group, up to its limit", group.limit_bytes, parts)


def _alone(server: ServerSnapshot) -> dict[str, object] | None:
    parts = _own(server.process)
    if not parts:
        return None
    return _fields("memory of its process", sum(part.bytes for part in parts), parts)


def _own(process: ProcessSample | None) -> list[Part]:
    if process is None:
        return []
    if process.anon_bytes is None:
        return [Part("server", "its process", process.resident_bytes)]
    told: Mapping[tuple[Kind, str], int | None] = {
        ("server", "its own"): process.anon_bytes,
        ("server", "shared"): process.shmem_bytes,
        ("files", "mapped files"): process.file_bytes,
        ("swap", "swapped out"): process.swap_bytes,
    }
    return [Part(kind, name, number) for (kind, name), number in told.items() if number]


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _fields(what: str, total: int, parts: list[Part]) -> dict[str, object]:
    held = sum(part.bytes for part in parts)
    parts = [part for part in parts if part.bytes]
    if total > held:
        parts.append(Part("free", "free", total - held))
    own = sum(part.bytes for part in parts if part.kind == "server")
    text = f"{what[:1].upper()}{what[1:]}: {size(own)} of {size(max(total, held))} are this server's"
    if total > held:
        text += f", {size(total - held)} are free"
    return {
        "what": what,
        "total_bytes": max(total, held),
        "parts": [{"kind": part.kind, "name": part.name, "bytes": part.bytes} for part in parts],
        "text": f"{text}.",
    }
