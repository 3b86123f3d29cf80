"""A plan for people: a table that fits 80 columns, and the flags to paste. Colours only on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvexporter.reports.findings import printable
from kvexporter.reports.plan import Plan
from kvexporter.reports.plan_clients import client_settings
from kvexporter.reports.quantities import share_words, size_words
from kvexporter.sizing import Configuration


def print_plan(plan: Plan, console: Console, *, clients: bool = False) -> None:
    """Write the plan to a terminal or, plainly, to a file."""
    _head(console, plan)
    console.print()
    console.print(_table(plan))
    console.print()
    if plan.why_none is not None:
        console.print(Text(plan.why_none, style="bold red"))
        console.print()
    _flags(console, plan)
    if clients:
        _clients(console, plan)
    for note in plan.notes:
        console.print(Text(f"note: {printable(note)}"))


def _head(console: Console, plan: Plan) -> None:
    name = f"Plan for {printable(plan.server)}" if plan.server is not None else "Plan"
    console.print(Text(name, style="bold"))
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True)
    facts.add_column()
    for subject, words in plan.origins:
        facts.add_row(Text(subject, style="dim"), Text(printable(words)))
    console.print(facts)


def _table(plan: Plan) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("configuration")
    for name in ("window sure\nfor each slot", "requests\nthat fit", "KV cache\ntakes", "memory\nleft"):
        table.add_column(name, justify="right", no_wrap=True)
    for index, each in enumerate(plan.configurations):
        title = f"{each.title}, overcommitted" if each.overcommitted else each.title
        style = "bold green" if index == plan.first else "red" if _is_unfit(each) else ""
        table.add_row(
            str(index + 1),
            Text(title, style=style),
            f"{each.guaranteed:,}",
            share_words(each.fits),
            size_words(each.kv_bytes),
            Text(size_words(each.memory_left), style="red" if (each.memory_left or 0) < 0 else ""),
        )
    return table


def _is_unfit(each: Configuration) -> bool:
    return each.overcommitted or (each.memory_left or 0) < 0


def _flags(console: Console, plan: Plan) -> None:
    for index, each in enumerate(plan.configurations):
        first = "  ← the first that is enough" if index == plan.first else ""
        heading = Text(f"{index + 1:>2}  {each.title}", style="bold")
        heading.append(first, style="green")
        console.print(heading)
        if each.flags:
            _paste(console, each.flags)
        console.print(Padding(Text(each.why), (0, 0, 0, 4)))
    console.print()


def _paste(console: Console, flags: Sequence[str]) -> None:
    for line in continued_lines(flags, console.width - 4):
        console.print(Text(f"    {line}", style="cyan"), soft_wrap=True)


def continued_lines(flags: Sequence[str], width: int) -> Iterator[str]:
    """Flags as lines of a shell command, an option never parted from its value."""
    line = ""
    for words in _options(flags):
        if line and len(line) + 1 + len(words) > width - 2:
            yield f"{line} \\"
            line = words
        else:
            line = f"{line} {words}" if line else words
    if line:
        yield line


def _options(flags: Sequence[str]) -> Iterator[str]:
    words: list[str] = []
    for flag in flags:
        if flag.startswith("-") and words:
            yield " ".join(words)
            words = []
        words.append(flag)
    if words:
        yield " ".join(words)


def _clients(console: Console, plan: Plan) -> None:
    told = client_settings(plan)
    console.print(Text(told.words, style="bold"))
    for name, lines in told.settings:
        console.print(Padding(Text(name), (0, 0, 0, 2)))
        for line in lines:
            console.print(Text(f"    {line}", style="cyan"), soft_wrap=True)
    console.print()
