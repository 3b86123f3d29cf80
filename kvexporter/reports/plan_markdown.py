"""A plan as Markdown, for an issue or a wiki. Pure."""

from __future__ import annotations

from kvexporter.reports.findings import printable
from kvexporter.reports.plan import Plan
from kvexporter.reports.plan_clients import client_settings
from kvexporter.reports.quantities import share_words, size_words


def plan_markdown(plan: Plan, *, clients: bool = False) -> str:
    """A heading, what is known, one table with the flags, notes."""
    title = "Plan" if plan.server is None else f"Plan for {_cell(plan.server)}"
    lines = [f"## {title}", ""]
    lines += [f"- {subject}: {_cell(words)}" for subject, words in plan.origins]
    lines += [
        "",
        "| | configuration | flags | window sure for each slot | requests that fit | KV cache | memory left |",
        "|---:|---|---|---:|---:|---:|---:|",
    ]
    for index, each in enumerate(plan.configurations):
        name = f"**{each.title}**" if index == plan.first else each.title
        if each.overcommitted:
            name += ", overcommitted"
        flags = f"`{' '.join(each.flags)}`" if each.flags else "as today"
        lines.append(
            f"| {index + 1} | {name} | {flags} | {each.guaranteed:,} | {share_words(each.fits)} | "
            f"{size_words(each.kv_bytes)} | {size_words(each.memory_left)} |"
        )
    if plan.why_none is not None:
        lines += ["", f"**{plan.why_none}**"]
    lines += ["", *(f"{index + 1}. {each.title}: {each.why}" for index, each in enumerate(plan.configurations))]
    if clients:
        told = client_settings(plan)
        lines += ["", told.words, ""]
        lines += [f"- {name} `{'`, `'.join(settings)}`" for name, settings in told.settings]
    if plan.notes:
        lines += ["", *(f"- Note: {_cell(note)}" for note in plan.notes)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text that cannot break out of its place: names come from processes and units."""
    return printable(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
