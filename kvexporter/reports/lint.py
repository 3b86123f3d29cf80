"""What lint found, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from kvexporter.lint.context import Reading
from kvexporter.lint.findings import SEVERITIES, Finding, Severity
from kvexporter.reports.findings import printable

_READ_AS = {
    "bash": "as bash reads it",
    "systemd": "as systemd reads it",
    "bash and systemd": "as bash and as systemd read it",
    "systemd and bash": "as systemd and as bash read it",
    "script": "as a shell script",
    "unit": "as a unit",
    "command line": "as llama-server reads it",
}
_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def failing(findings: Sequence[Finding], least: Severity) -> bool:
    """Whether there is a finding of at least this severity."""
    rank = SEVERITIES.index(least)
    return any(SEVERITIES.index(found.severity) >= rank for found in findings)


def lint_json(readings: Sequence[Reading], findings: Sequence[Finding]) -> str:
    """One JSON object: `files` (what was read, by whose rules, why) and `findings`; `correction` is null for none."""
    shown = [{**asdict(found), "correction": found.correction or None} for found in findings]
    document = {"files": [asdict(reading) for reading in readings], "findings": shown}
    # What was not UTF-8 would not be in the output either.
    return json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8", "replace").decode() + "\n"


def print_lint(readings: Sequence[Reading], findings: Sequence[Finding], console: Console) -> None:
    """The findings by place, each with what would happen and the corrected line, and a summary at the end.

    Places and corrected lines are not wrapped, so that editors and people can take them as they are.
    """
    several = any(" and " in reading.rules for reading in readings)
    for reading in readings:
        judged = f"judged {_READ_AS[reading.rules]}" if reading.rules in _READ_AS else "not judged"
        console.print(Text(printable(f"{reading.file}: {judged}: {reading.why}"), style="dim"))
    for found in findings:
        console.print()
        head = Text(printable(f"{found.file}:{found.line}:{found.column}: "))
        head.append(found.severity, style=_STYLES[found.severity])
        rules = f", {found.rules}" if several else ""
        head.append(printable(f": {found.text} ({found.code}{rules})"))
        console.print(head, soft_wrap=True)
        console.print(Padding(Text(printable(found.consequence)), (0, 0, 0, 4)))
        if found.correction:
            console.print(Text(f"  → {printable(found.correction.strip())}", style="green"), soft_wrap=True)
    console.print()
    console.print(Text(_summary(findings), style="bold"))


def _summary(findings: Sequence[Finding]) -> str:
    counts = {severity: sum(found.severity == severity for found in findings) for severity in reversed(SEVERITIES)}
    words = [f"{count} {severity}{'' if count == 1 else 's'}" for severity, count in counts.items() if count]
    return ", ".join(words) or "nothing found"
