"""What is wrong with a unit that starts a llama-server: its variables, its command lines, and what they lead to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kvexporter.lint.bash_values import Shell
from kvexporter.lint.context import Context, FileText, Reading, marked
from kvexporter.lint.exec_line import (
    SYSTEMD_SETS,
    UnbalancedError,
    UnitEnvironment,
    executions,
    read_environment_entry,
    split_words,
)
from kvexporter.lint.findings import Findings
from kvexporter.lint.programs import Start, find_start, script_path, shell_text
from kvexporter.lint.script_checks import check_script
from kvexporter.lint.server_checks import check_server
from kvexporter.lint.server_command import ServerCommand
from kvexporter.lint.server_variables import check_variables
from kvexporter.lint.unit_text import Entry, read_unit
from kvexporter.lint.words import Value


def check_unit(context: Context, parts: Sequence[tuple[str, str]], why: str) -> None:
    """Add what is wrong with a unit: its file and drop-ins (path and text, in the order of reading)."""
    entries: list[Entry] = []
    for path, text in parts:
        context.readings.append(Reading(path, "unit", why))
        entries += read_unit(context.book.add(path, text))
    service = [entry for entry in entries if entry.section == "Service"]
    environment, starts = _unit_environment(context, service)
    commands = [entry for entry in service if entry.key == "ExecStart"]
    # An empty one takes back those before it.
    resets = [at for at, entry in enumerate(commands) if not entry.value.text]
    for entry in commands[resets[-1] + 1 if resets else 0 :]:
        _exec(context, entry, environment, starts)


def _unit_environment(context: Context, service: Sequence[Entry]) -> tuple[UnitEnvironment, dict[str, int]]:
    out = context.out("unit")
    environment = UnitEnvironment()
    starts: dict[str, int] = {}
    files: list[Entry] = []
    for entry in service:
        if entry.key == "Environment":
            if not entry.value.text:
                environment.variables.clear()
                starts.clear()
            _environment_entry(context, entry, environment, starts, out)
        elif entry.key == "EnvironmentFile":
            files = [*files, entry] if entry.value.text else []
        elif entry.key == "PassEnvironment":
            environment.variables.update(dict.fromkeys(entry.value.text.split()))
    check_variables(environment.variables, starts, out, context.build)
    # systemd reads these last, wherever they stand.
    for entry in files:
        _environment_file(context, entry, environment, starts, out)
    return environment, {name: mark for name, mark in starts.items() if name.startswith("LLAMA_")}


def _environment_entry(
    context: Context, entry: Entry, environment: UnitEnvironment, starts: dict[str, int], out: Findings
) -> None:
    try:
        words = split_words(entry.value)
        given = read_environment_entry(entry.value)
    except UnbalancedError as error:
        _unbalanced(error.mark, out)
        return
    for name, value in given.items():
        environment.variables[name] = value
        starts[name] = value.marks[0] - len(name) - 1 if len(value.marks) else entry.start
    first = next((word for word in words if "=" in word.text), None)
    for word in words:
        if "=" in word.text or "%" in word.text:
            continue
        corrected = ""
        if first is words[0] and not set(entry.value.text) & set("\"'"):
            corrected = context.book.replaced(words[0].start, words[-1].end, f'"{entry.value.text}"')
        out.add(
            "unquoted-value", "error", word.start, f"“{word.text[:40]}” is no assignment: the value before it ended",
            "systemd splits Environment= at white space and ignores this word.", corrected,
        )  # fmt: skip
        break


def _environment_file(
    context: Context, entry: Entry, environment: UnitEnvironment, starts: dict[str, int], out: Findings
) -> None:
    optional = entry.value.text.startswith("-")
    path = entry.value.text.removeprefix("-").strip("\"'")
    given = context.read(path) if not set(path) & set("*?[%") else FileText(None, "it is a pattern")
    if given.text is None:
        if not given.missing:
            environment.known = False
            context.readings.append(Reading(path, "nothing", given.problem))
        elif not optional:
            out.add(
                "missing-file", "error", entry.start, f"{path} does not exist",
                "The unit does not start: “Failed to load environment files”. With - before the path it may be.",
                out.book.replaced(entry.value.marks[0], entry.value.marks[0], "-"),
            )  # fmt: skip
        return
    variables = context.environment_at(path, "systemd", given.text, "a unit names it with EnvironmentFile=")
    environment.variables.update(variables)
    starts.update((name, value.marks[0]) for name, value in variables.items() if value is not None and len(value.marks))


def _exec(context: Context, entry: Entry, environment: UnitEnvironment, starts: Mapping[str, int]) -> None:
    out = context.out("unit")
    try:
        found = executions(entry.value, environment)
    except UnbalancedError as error:
        _unbalanced(error.mark, out)
        return
    for execution in found:
        words = [marked(word) for word in (execution.program, *execution.arguments)]
        start = find_start(words, context.book)
        if start is not None:
            _check_start(context, entry, start, environment, starts)
            continue
        shell = _shell(environment)
        inner = shell_text(words)
        if inner is not None:
            check_script(context, inner, shell, "unit", starts)
            continue
        path = script_path(words)
        if path is not None and path not in context.scripts:
            context.scripts.add(path)
            given = context.read(path)
            if given.text is not None and _is_shell_script(given.text):
                context.readings.append(Reading(path, "script", "a unit's ExecStart= runs it"))
                check_script(context, context.book.add(path, given.text).whole(), shell, "script", starts)


def _check_start(
    context: Context, entry: Entry, start: Start, environment: UnitEnvironment, starts: Mapping[str, int]
) -> None:
    out = context.out("unit")
    check_variables(start.variables, start.starts, out, context.build)
    passed = any(name.startswith("LLAMA_") and name not in starts for name in environment.variables)
    whole = start.whole and (start.container or (environment.known and not passed))
    around = {} if start.container else {name: environment.variables.get(name) for name in starts}
    marks = start.starts if start.container else {**starts, **start.starts}
    command = ServerCommand(start.arguments, {**around, **start.variables}, marks, whole, entry.start)
    context.starts += 1
    check_server(command, out, context.build)


def _shell(environment: UnitEnvironment) -> Shell:
    """The shell that a unit's command runs in."""
    own: dict[str, Value] = dict.fromkeys(SYSTEMD_SETS)
    return Shell({**own, **environment.variables}, known=environment.known, exported=set(environment.variables))


def _unbalanced(mark: int, out: Findings) -> None:
    out.add(
        "unclosed-quote", "error", mark, "nothing closes this quote",
        "systemd ignores the line (“Unbalanced quoting, ignoring”).",
    )  # fmt: skip


def _is_shell_script(text: str) -> bool:
    return re.match(r"#!\s*\S*/(?:env\s+(?:-\S+\s+)*)?(?:ba|da|z|k|a)?sh\b", text) is not None
