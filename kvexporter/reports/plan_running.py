"""What a running server tells to whoever plans for it: its options, its pool, its model's file, the memory beside it.

Nothing it is asked can wake it or keep it awake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvexporter.aside import Aside
from kvexporter.config import Config
from kvexporter.facts import FoundProcess, GgufHeader, GpuReport, HostMemory
from kvexporter.geometry import merge
from kvexporter.gpu_memory import process_memory
from kvexporter.gpu_worker import GpuWorker
from kvexporter.kv_bytes import cache_types
from kvexporter.llama.errors import MalformedBody
from kvexporter.llama.geometry import geometry_from_api, geometry_from_launch
from kvexporter.llama.memory_options import memory_options
from kvexporter.llama.model_shape import ModelShape, ShapeError, model_shape, training_context
from kvexporter.llama.props import Props, parse_props
from kvexporter.pool_geometry import Geometry
from kvexporter.sources.discovery import discover
from kvexporter.sources.gguf_header import HeaderError
from kvexporter.sources.host_memory import read_host_memory
from kvexporter.sources.llama_api import LlamaApi
from kvexporter.sources.model_file import ModelFiles
from kvexporter.targets import Target, plan_targets

HEADER_SECONDS = 10.0
GPU_SECONDS = 20.0
"""A driver that has to wake its GPUs first takes several seconds."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What the header of a model's file tells."""

    shape: ModelShape | None = None
    context_train: int | None = None
    problem: str | None = None
    """Why it does not tell the cache's size."""


@dataclass(frozen=True, slots=True)
class Running:
    """One running server."""

    name: str
    geometry: Geometry
    types: tuple[str, str] | None
    """Cache types of K and V; None where they are not known."""
    model: ModelFile
    gpus_held: frozenset[str]
    on_host: bool
    """Its cache is kept off the GPUs."""


def find_servers(config: Config, proc: str = "/proc") -> list[Target]:
    """The servers of this host, by their processes, and those that are configured. Raises OSError."""
    return plan_targets(config, discover(proc))


def read_memory(pids: Iterable[int], root: Path = Path("/")) -> tuple[GpuReport, HostMemory]:
    """What GPUs and host have free now."""
    return asyncio.run(_read_gpus(tuple(pids), root)), read_host_memory(root)


def look_at(target: Target, report: GpuReport) -> Running:
    """Look at one server, and ask it for its properties."""
    return asyncio.run(_look_at(target, report))


def read_model(names: Sequence[str], process: FoundProcess | None = None) -> ModelFile:
    """Read the header of a model's file, named as the server's process names it, or from here."""
    return asyncio.run(_read_model(names, process))


async def _read_gpus(pids: tuple[int, ...], root: Path) -> GpuReport:
    worker = GpuWorker(root, GPU_SECONDS)
    report = await worker.read(pids)
    await worker.aclose()
    return report


async def _look_at(target: Target, report: GpuReport) -> Running:
    process, options = target.process, target.options
    props = await _props(target)
    names = [props.model_path if props is not None else None, options.model if options is not None else None]
    known = list(dict.fromkeys(name for name in names if name))
    model = await _read_model(known, process) if known else ModelFile()
    api = geometry_from_api(props.total_slots, props.slot_context) if props is not None else Geometry()
    launch = None
    if options is not None:
        launch = geometry_from_launch(
            options, slots=api.slots, slot_context=api.slot_context, training_context=model.context_train
        )
    held: dict[str, int] = {}
    given: dict[str, str] = {}
    if process is not None:
        held = process_memory(report.gpus, process.pid, None)
        given = memory_options(process.arguments[1:], process.environment)
    return Running(
        target.name,
        merge(target.geometry, launch, api),
        cache_types(options),
        model,
        frozenset(index for index, size in held.items() if size),
        "-nkvo" in given,
    )


async def _props(target: Target) -> Props | None:
    if target.api is None:
        return None
    api = LlamaApi(target.api)
    try:
        answer = await api.get("props")
        return parse_props(answer.body) if answer.ok else None
    except MalformedBody:
        return None
    finally:
        await api.aclose()


async def _read_model(names: Sequence[str], process: FoundProcess | None) -> ModelFile:
    reading: Aside[GgufHeader] = Aside(f"reading {names[0]}")
    pid = process.pid if process is not None else None
    in_container = process is not None and process.container is not None
    try:
        header = await reading.call(lambda: ModelFiles().read(names, pid, in_container=in_container), HEADER_SECONDS)
    except (HeaderError, OSError, TimeoutError) as error:
        return ModelFile(problem=str(error))
    try:
        return ModelFile(model_shape(header), training_context(header))
    except ShapeError as error:
        return ModelFile(None, training_context(header), f"{names[0]} {error}")
