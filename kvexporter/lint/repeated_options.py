"""What a start of a llama-server says twice, or against itself: options given again, and variables that do nothing."""

from __future__ import annotations

from kvexporter.lint.command_line import Occurrence
from kvexporter.lint.findings import Findings
from kvexporter.lint.options import find_variable
from kvexporter.lint.server_command import UnderstoodCommand

# Options that may be given again and again.
_REPEATED = frozenset(
    ("--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled", "--override-kv", "-ot", "-l",
     "--dry-sequence-breaker", "-r", "--spec-replace", "--spec-draft-override-tensor", "--logit-bias", "-mm")
)  # fmt: skip


def check_repeated(command: UnderstoodCommand, out: Findings) -> None:
    """Options that are given more than once though only the last one counts."""
    seen: dict[str, Occurrence] = {}
    for found in command.given.options:
        before = seen.get(found.option)
        seen[found.option] = found
        if before is None or found.option in _REPEATED:
            continue
        if before.known.positive != found.known.positive:
            out.add(
                "contradiction", "warning", before.name.start,
                f"{before.name.text} and {found.name.text} contradict each other",
                f"The last one counts: {found.name.text}.", command.removed(before),
            )  # fmt: skip
        elif before.values or found.values:
            same = [value.text for value in before.values] == [value.text for value in found.values]
            happens = "It does no harm." if same else f"The last one counts: {_shown(found)}."
            out.add(
                "given-twice", "warning", before.name.start,
                f"{before.name.text} is given again as {found.name.text}"
                if before.name.text != found.name.text
                else f"{found.name.text} is given twice",
                happens, command.removed(before),
            )  # fmt: skip


def check_overridden(command: UnderstoodCommand, out: Findings) -> None:
    """Variables whose option is given on the command line as well."""
    for name, mark in command.starts.items():
        known = find_variable(name)
        found = command.given.last(known.option.names[0]) if known is not None else None
        if found is None:
            continue
        out.add(
            "variable-overridden", "warning", mark, f"{name} does nothing: {found.name.text} is given as well",
            f"The command line counts: {_shown(found)}.",
        )  # fmt: skip


def _shown(found: Occurrence) -> str:
    return " ".join([found.name.text, *(value.text if value.known else "…" for value in found.values)])
