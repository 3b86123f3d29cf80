"""`kvexporter check`: what was found, what can be read, what is missing and how to mend it."""

from __future__ import annotations

import asyncio
import os

from kvexporter.config import Config
from kvexporter.facts import Endpoint
from kvexporter.llama.errors import MalformedBody
from kvexporter.llama.props import Props, parse_props
from kvexporter.reports.findings import Finding, exit_status, format_findings
from kvexporter.reports.server_check import ServerFacts, server_findings
from kvexporter.sources.discovery import discover, hidden_processes
from kvexporter.sources.journal_health import journal_health
from kvexporter.sources.llama_api import ApiAnswer, LlamaApi
from kvexporter.targets import Target, plan_targets

__all__ = ["Finding", "exit_status", "format_findings", "gather"]


def gather(config: Config, proc: str = "/proc") -> list[Finding]:
    """Look at everything once. Asks no server anything that could wake it or keep it awake."""
    findings = [Finding("warning", "configuration", warning) for warning in config.warnings]
    if os.geteuid() == 0:
        findings.append(
            Finding(
                "warning",
                "permissions",
                "this check runs as root, who may read everything",
                "run it as the user that kvexporter runs as",
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
    if not targets:
        findings.append(
            Finding(
                "problem",
                "processes",
                "no llama-server process was found on this host",
                "start one, or list servers in a configuration file (--config.file)",
            )
        )
    for facts in asyncio.run(_look_at_all(targets)):
        findings += server_findings(facts)
    return findings


async def _look_at_all(targets: list[Target]) -> list[ServerFacts]:
    return list(await asyncio.gather(*(_look_at(target) for target in targets)))


async def _look_at(target: Target) -> ServerFacts:
    journal = await asyncio.to_thread(journal_health, target.selection) if target.selection is not None else None
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
    return ServerFacts(target, journal, answers, props)


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
