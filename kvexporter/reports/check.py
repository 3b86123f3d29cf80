"""`kvexporter check`: what was found, what can be read, what is missing and how to mend it."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvexporter.aside import Aside
from kvexporter.config import Config
from kvexporter.facts import Endpoint, GgufHeader, GpuReport
from kvexporter.feed import feed_key
from kvexporter.gpu_worker import GpuWorker
from kvexporter.llama.errors import MalformedBody
from kvexporter.llama.log import parse_line
from kvexporter.llama.model_shape import ModelShape, ShapeError, model_shape
from kvexporter.llama.props import Props, parse_props
from kvexporter.reports.findings import Finding, exit_status, format_findings
from kvexporter.reports.gpu_check import gpu_findings
from kvexporter.reports.memory_check import MemoryFacts, memory_findings
from kvexporter.reports.server_check import ServerFacts, common_findings, server_findings
from kvexporter.sources.discovery import discover, hidden_processes, lookalikes
from kvexporter.sources.gguf_header import HeaderError
from kvexporter.sources.host_memory import in_own_pid_namespace
from kvexporter.sources.journal_dropped import dropped_lines
from kvexporter.sources.journal_health import JournalHealth, journal_health, with_own_entries
from kvexporter.sources.llama_api import ApiAnswer, LlamaApi
from kvexporter.sources.log_health import look_into_file
from kvexporter.sources.log_selection import LogFileSelection, Selection, StdinSelection
from kvexporter.sources.model_file import ModelFiles
from kvexporter.starts import StartRecord, decode_start
from kvexporter.store_file import StoreError
from kvexporter.store_reading import read_gaps, read_starts
from kvexporter.targets import Target, plan_targets

__all__ = ["Finding", "exit_status", "format_findings", "gather"]


AS_THE_SERVICE = (
    *("systemd-run", "--pipe", "--wait", "--quiet", "-p", "DynamicUser=yes", "-p", "User=kvexporter"),
    *("-p", "SupplementaryGroups=systemd-journal", "-p", "StateDirectory=kvexporter"),
    *("-p", "StateDirectoryMode=0700"),
)
"""How root runs a command as the packaged unit's user, which exists only while something runs as it."""
HEADER_SECONDS = 10.0
GPU_SECONDS = 20.0
"""A driver that has to wake its GPUs first takes several seconds."""


def gather(
    config: Config,
    proc: str = "/proc",
    stores: Sequence[Path] = (),
    root: Path = Path("/"),
    command: Sequence[str] = ("kvexporter", "check"),
) -> list[Finding]:
    """Look at everything once. Asks no server anything that could wake it or keep it awake.

    `stores`: where kvexporter's own file may be; the first that is there is read. `command`: by which this check runs.
    """
    findings = [Finding("warning", "configuration", warning) for warning in config.warnings]
    if os.geteuid() == 0:
        findings.append(
            Finding(
                "warning",
                "permissions",
                "this check runs as root, who may read everything",
                f"run it as the service does: {shlex.join((*AS_THE_SERVICE, *command))}",
            )
        )
    hidden = hidden_processes(proc)
    if hidden is not None:
        findings.append(Finding("problem", "processes", hidden))
    try:
        found = discover(proc)
    except OSError as error:
        findings.append(Finding("problem", "processes", f"{proc} cannot be listed: {error.strerror}"))
        found = []
    targets = plan_targets(config, found)
    findings += _renamed(proc, targets)
    if not targets:
        findings.append(
            Finding(
                "problem",
                "processes",
                "no llama-server process was found on this host",
                "start one, or list servers in a configuration file (--config.file)",
            )
        )
    (starts, gaps), problem = _stored(stores)
    if problem is not None:
        findings.append(problem)
    looked_at = asyncio.run(_look_at_all(targets, gaps))
    common, told = common_findings(looked_at)
    findings += common
    for facts in looked_at:
        target = facts.target
        findings += server_findings(facts, told)
        shape, why_not = facts.shape
        findings += memory_findings(target, MemoryFacts(shape, why_not, starts.get(target.name, ())))
    report = asyncio.run(_read_gpus(targets, root))
    return [*findings, *gpu_findings(report, targets, in_own_pid_namespace(root))]


def _renamed(proc: str, targets: Sequence[Target]) -> list[Finding]:
    """Processes that may be a llama-server under another name."""
    known = {target.process.pid for target in targets if target.process is not None}
    try:
        found = lookalikes(proc, known)
    except OSError:
        return []  # said already
    return [
        Finding(
            "warning",
            "processes",
            f"process {pid} ({name}) serves a GGUF model: is it a llama-server under another name?",
            "only programs named llama-server are found by themselves: name its unit or url in the configuration",
        )
        for pid, name in found
    ]


async def _read_gpus(targets: Sequence[Target], root: Path) -> GpuReport:
    worker = GpuWorker(root, GPU_SECONDS)
    report = await worker.read(target.process.pid for target in targets if target.process is not None)
    await worker.aclose()
    return report


_Stored = tuple[dict[str, list[StartRecord]], dict[str, int]]
"""Server → its kept starts, and journal → its gaps."""


def _stored(stores: Sequence[Path]) -> tuple[_Stored, Finding | None]:
    """What the exporter has kept, and why it cannot be read where it is there."""
    for path in stores:
        try:
            if not path.exists():
                continue
            starts = {
                server: [start for detail in details if (start := decode_start(detail)) is not None]
                for server, details in read_starts(path).items()
            }
            return (starts, read_gaps(path)), None
        except (StoreError, OSError) as error:
            text = str(error) if isinstance(error, StoreError) else f"{path}: {error.strerror}"
            remedy = "run this check as root or as the user that kvexporter runs as"
            return ({}, {}), Finding("warning", "store", f"{text}: the servers' starts are not compared", remedy)
    return ({}, {}), None


async def _look_at_all(targets: list[Target], gaps: Mapping[str, int]) -> list[ServerFacts]:
    return list(await asyncio.gather(*(_look_at(target, gaps) for target in targets)))


def _log(selection: Selection) -> tuple[JournalHealth, int]:
    """Whether a log can be read, and how many of its lines journald says it dropped."""
    if isinstance(selection, LogFileSelection):
        return look_into_file(selection, parse_line, time.time()), 0
    if isinstance(selection, StdinSelection):
        return JournalHealth(files=1), 0
    return with_own_entries(journal_health(selection), selection), dropped_lines(selection)


async def _look_at(target: Target, gaps: Mapping[str, int]) -> ServerFacts:
    selection = target.selection
    journal, dropped = None, 0
    if selection is not None:
        journal, dropped = await asyncio.to_thread(_log, selection)
    answers: dict[Endpoint, ApiAnswer] = {}
    props: Props | None = None
    if target.api is not None:
        api = LlamaApi(target.api)
        try:
            answers["health"] = await api.get("health")
            answers["props"] = await api.get("props")
            props = _props(answers["props"])
            if _may_be_asked(target, props):
                answers["slots"] = await api.get("slots")
                answers["metrics"] = await api.get("metrics")
        finally:
            await api.aclose()
    return ServerFacts(
        target,
        journal,
        answers,
        props,
        dropped_lines=dropped,
        gaps=gaps.get(feed_key(selection), 0) if selection is not None else 0,
        shape=await _shape(target, props),
    )


async def _shape(target: Target, props: Props | None) -> tuple[ModelShape | None, str | None]:
    """What the header of the model's file tells, or why it does not."""
    process, options = target.process, target.options
    names = [props.model_path if props is not None else None, options.model if options is not None else None]
    known = list(dict.fromkeys(name for name in names if name))
    if process is None or not known:
        return None, None
    reading: Aside[GgufHeader] = Aside(f"reading {known[0]}")
    files = ModelFiles()
    try:
        header = await reading.call(
            lambda: files.read(known, process.pid, in_container=process.container is not None), HEADER_SECONDS
        )
        return model_shape(header), None
    except (HeaderError, OSError, TimeoutError) as error:
        return None, str(error)
    except ShapeError as error:
        return None, f"{known[0]} {error}"


def _props(answer: ApiAnswer) -> Props | None:
    if not answer.ok:
        return None
    try:
        return parse_props(answer.body)
    except MalformedBody:
        return None


def _may_be_asked(target: Target, props: Props | None) -> bool:
    """Whether asking for slots can neither wake the server nor reset its sleep timer, nor load a model."""
    if props is None or props.sleeping or props.router:
        return False
    if target.may_sleep is not None:
        return not target.may_sleep
    if props.sleeping is None:
        return True  # builds that cannot sleep do not tell whether they do
    options = target.options
    return (
        options is not None and options.environment_known and not options.router and options.sleep_idle_seconds is None
    )
