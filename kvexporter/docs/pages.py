"""The reference documents as Markdown: metrics, alerts, configuration and command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from kvexporter.cli import commands
from kvexporter.config import CONFIG
from kvexporter.config_reading import ListOf, Section
from kvexporter.docs.alerts_page import alerts_page
from kvexporter.docs.tables import table
from kvexporter.metrics.definitions import SECTIONS

_MADE = "<!-- Made by `python -m kvexporter.docs` from the definitions in the code: change them, not this page. -->"


def metrics_page() -> str:
    """Give docs/metrics.md."""
    parts = [
        "# Metrics",
        _MADE,
        "Unknown is absent and never 0: a series that is not there means that nobody knows. Times are unix seconds, "
        "sizes bytes, ratios go from 0 to 1. Counters start at 0 with the first line that was read.",
        "The format is Prometheus text, or OpenMetrics for who asks for it (there the counters' families have no "
        "`_total`).",
    ]
    for section in SECTIONS:
        parts += [f"## {section.title}", section.text]
        rows = (
            (
                f"`{metric.name}`",
                metric.kind,
                ", ".join(f"`{label}`" for label in metric.labels),
                metric.unit,
                metric.meaning,
                metric.source,
                metric.absent or "never",
            )
            for metric in section.metrics
        )
        parts.append(table(("Metric", "Type", "Labels", "Unit", "Meaning", "Source", "Absent"), rows))
    return "\n\n".join(parts) + "\n"


EXAMPLE = """\
poll_interval: 1s
servers:
  - name: main
    unit: llama-server.service
    api_key_file: /etc/kvexporter/key
  - name: container
    url: http://127.0.0.1:8081
    journal:
      matches:
        - {CONTAINER_NAME: llama}
  - name: far
    url: https://gpu2.example:8443/base
    tls: {ca_file: /etc/kvexporter/ca.pem}
    may_sleep: false
"""


def configuration_page() -> str:
    """Give docs/configuration.md."""
    parts = [
        "# Configuration",
        _MADE,
        "The file is optional: without one, kvexporter finds the llama-server processes of its host, their units and "
        "their options. It is YAML, named with `--config.file`, checked with `--config.check`, and read anew on "
        "SIGHUP; if it cannot be used, the old one stays in force.",
        f"```yaml\n{EXAMPLE}```",
        "Durations are written as in Prometheus: `500ms`, `1s`, `1m30s`. Unknown keys, wrong types and impossible "
        "values are refused with file, line, key and what was expected. Secrets are only read from files, each time "
        "they are used, so that they can be replaced while kvexporter runs; under systemd, `LoadCredential=` puts them "
        "into `/run/credentials/kvexporter.service/`.",
    ]
    parts += [text for part in _section("", CONFIG) for text in part]
    return "\n\n".join(parts) + "\n"


def _section(path: str, section: Section[Any]) -> Iterator[list[str]]:
    rows = []
    inner: list[tuple[str, Section[Any]]] = []
    for name, key in section.keys().items():
        kind = key.kind.kind if isinstance(key.kind, ListOf) else key.kind
        here = f"{path}.{name}" if path else name
        if isinstance(kind, Section):
            inner.append((f"{here}[]" if isinstance(key.kind, ListOf) else here, kind))
        rows.append((f"`{name}`", key.kind.words, key.doc, key.default or "none"))
    yield [
        f"## `{path}`" if path else "## The file",
        (section.shape.__doc__ or "").strip(),
        table(("Key", "Type", "Meaning", "Default"), rows),
    ]
    for where, kind in inner:
        yield from _section(where, kind)


def cli_page() -> str:
    """Give docs/cli.md."""
    parts = [
        "# Command line",
        _MADE,
        "`kvexporter` without a command is `kvexporter run`.",
        "Exit status: 0 all well, 1 something was found or failed, 2 the command line or the configuration cannot be "
        "used. Errors are one line each on stderr.",
    ]
    for name in commands.commands:
        command = commands.commands[name]
        arguments = [p.make_metavar(click.Context(command)) for p in command.params if isinstance(p, click.Argument)]
        parts += [f"## `{' '.join(['kvexporter', name, *arguments])}`", _paragraphs(command.help or "")]
        options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        rows = ((_spelling(option), option.help or "", _default(option)) for option in options)
        parts.append(table(("Option", "Meaning", "Default"), rows))
    return "\n\n".join(parts) + "\n"


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _spelling(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    if option.is_flag:
        return names
    choices = option.type.choices if isinstance(option.type, click.Choice) else None
    return f"{names} {'|'.join(map(str, choices)) if choices else option.metavar or option.type.name.upper()}"


def _default(option: click.Option) -> str:
    if option.is_flag or not option.show_default:
        return ""
    values = option.default if isinstance(option.default, list) else [option.default]
    return ", ".join(f"`{value}`" for value in values)


PAGES: dict[str, Callable[[], str]] = {
    "metrics.md": metrics_page,
    "alerts.md": alerts_page,
    "configuration.md": configuration_page,
    "cli.md": cli_page,
}
"""File name → how it is made."""
