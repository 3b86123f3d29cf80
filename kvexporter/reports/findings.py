"""What a report found, and how it is printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. A problem means that numbers will be missing; a warning that some may be."""

    level: Level
    subject: str
    """The server's name, or the part of kvexporter."""
    text: str
    remedy: str = ""
    """What to do about it."""


def exit_status(findings: Iterable[Finding]) -> int:
    """1 if there is a problem among them, else 0."""
    return int(any(finding.level == "problem" for finding in findings))


def format_findings(findings: Sequence[Finding]) -> str:
    """Print the findings by subject, in the order in which the subjects come first, with a summary at the end."""
    lines: list[str] = []
    for subject in dict.fromkeys(finding.subject for finding in findings):
        lines.append(printable(subject))
        for finding in findings:
            if finding.subject == subject:
                lines.append(f"  {finding.level:<8} {printable(finding.text)}")
                if finding.remedy:
                    lines.append(f"{'':<10} → {printable(finding.remedy)}")
        lines.append("")
    problems, warnings = (sum(f.level == level for f in findings) for level in ("problem", "warning"))
    lines.append(f"{_number(problems, 'problem')}, {_number(warnings, 'warning')}")
    return "\n".join(lines) + "\n"


def _number(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """Keep control characters of process and unit names away from the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
