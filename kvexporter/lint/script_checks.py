"""What is wrong with the llama-server command lines of a shell script."""

from __future__ import annotations

from collections.abc import Mapping

from kvexporter.lint.bash_assignments import Sourced, apply
from kvexporter.lint.bash_commands import Command, Parsed, parse_commands
from kvexporter.lint.bash_values import Shell
from kvexporter.lint.context import Context, marked
from kvexporter.lint.findings import Findings, Rules
from kvexporter.lint.options import find
from kvexporter.lint.places import Traced
from kvexporter.lint.programs import Start, find_start, shell_text
from kvexporter.lint.server_checks import check_server
from kvexporter.lint.server_command import ServerCommand
from kvexporter.lint.server_variables import check_variables
from kvexporter.lint.words import Argument

_DEEPEST = 5
"""Shells in shells that are followed."""


def check_script(
    context: Context, text: Traced, shell: Shell, rules: Rules, starts: Mapping[str, int], depth: int = 0
) -> None:
    """Add what is wrong with a script. `shell` holds the variables it is given, `starts` where these are set."""
    parsed = parse_commands(text)
    out = context.out(rules)
    if parsed.broken_at is not None:
        out.add(
            "syntax-error", "error", parsed.broken_at, f"{parsed.broken_by} is not closed or has no place here",
            "The shell ends with a syntax error when it comes here.",
        )  # fmt: skip
    sourced = Sourced(shell, dict(starts))
    for command in parsed.commands:
        words = [marked(argument) for word in command.words for argument in shell.arguments(word)]
        inner = shell_text(words)
        if inner is not None and depth < _DEEPEST:
            check_script(context, inner, shell.copy(), rules, starts, depth + 1)
        start = find_start(words, context.book)
        if start is not None:
            _check_start(context, command, start, sourced, out)
        elif words and words[0].text.startswith("-") and find(words[0].text) is not None:
            _cut_off(words[0], out)
        apply(sourced, command, lambda path: _sourced_file(context, path))


def _check_start(context: Context, command: Command, start: Start, sourced: Sourced, out: Findings) -> None:
    before = {made.name: sourced.shell.value(made.value) for made in command.assignments}
    starts = {**sourced.assigned, **{made.name: made.start for made in command.assignments}}
    variables = {**sourced.shell.variables, **before}
    named: dict[str, int] = {}
    for name, mark in starts.items():
        if not name.startswith("LLAMA_ARG_"):
            continue
        if start.container:
            continue
        if name in sourced.shell.exported or name in before:
            named[name] = mark
        else:
            out.add(
                "not-exported", "warning", mark, f"{name} is set, but not exported",
                "llama-server does not see it: only `export`, or `set -a` before, hands variables on to programs.",
                context.book.replaced(mark, mark, "export ") if name in sourced.shell.variables else "",
            )  # fmt: skip
    values = {**{name: variables.get(name) for name in named}, **start.variables}
    named.update(start.starts)
    check_variables(values, named, out, context.build)
    # Who calls the script may give it further variables, but what it sets itself is known.
    context.starts += 1
    check_server(ServerCommand(start.arguments, values, named, start.whole, command.start), out, context.build)


def _cut_off(word: Argument, out: Findings) -> None:
    out.add(
        "cut-off", "error", word.start, f"{word.text} begins a command of its own",
        "The command before ended: its last line has no backslash at its end, or a space after it, or a comment stands "
        f"between. The shell runs a command called {word.text}, which does not exist: exit status 127.",
    )  # fmt: skip


def _sourced_file(context: Context, path: str) -> Parsed | None:
    """A file that a script reads with `.`; None where it cannot be read."""
    if not path.startswith("/"):
        return None
    known = context.parsed.get(path)
    if known is not None:
        return known
    given = context.read(path)
    if given.text is None:
        return None
    context.environment_at(path, "bash", given.text, "a script reads it with .")
    context.parsed[path] = parse_commands(context.book.add(path, given.text).whole())
    return context.parsed[path]
