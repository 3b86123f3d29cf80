"""What a text leaves behind when bash reads it with `.`: its variables, as far as that can be told without running."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kvexporter.lint.bash_commands import Assignment, Command, Parsed, split_assignment
from kvexporter.lint.bash_values import Shell
from kvexporter.lint.places import NOTHING, Traced
from kvexporter.lint.words import Argument, Value

DECLARES = frozenset(("export", "declare", "typeset", "readonly", "local"))
READS = frozenset((".", "source"))

_EXPANDED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.ASCII)


@dataclass(slots=True)
class Sourced:
    """What a file sets when bash reads it."""

    shell: Shell
    assigned: dict[str, int]
    """Variable → mark of its last assignment."""
    ended: bool = False
    """It has left the file for certain: nothing after it runs."""


def run_assignments(
    parsed: Parsed, shell: Shell, read: Callable[[str], Parsed | None] | None = None, depth: int = 0
) -> Sourced:
    """Apply the assignments of the commands to the shell, in their order; `read` gives files that are read in turn."""
    sourced = Sourced(shell, {})
    for command in parsed.commands:
        apply(sourced, command, read, depth)
    return sourced


def apply(
    sourced: Sourced, command: Command, read: Callable[[str], Parsed | None] | None = None, depth: int = 0
) -> None:
    """What one command does to the shell's variables."""
    shell = sourced.shell
    certain = command.certain and not sourced.ended
    name = command_name(command, shell)
    if not command.words:
        _assign(sourced, command.assignments, certain)
    elif name in DECLARES:
        _declare(sourced, command, certain)
    elif name == "unset":
        for word in command.words[1:]:
            _unset(shell, word.literal, certain)
    elif name == "read":
        for word in command.words[1:]:
            _unset(shell, word.literal, False)
    elif name in READS and len(command.words) > 1:
        _read_file(sourced, command, certain, read, depth)
    elif name in ("exit", "return") and certain:
        sourced.ended = True
    elif name == "set":
        _set(shell, [word.literal for word in command.words[1:]])
    elif name == "eval":
        shell.known = False


def command_name(command: Command, shell: Shell) -> str | None:
    """The name of the command that runs; None if there is none or it is not known."""
    if not command.words:
        return None
    arguments = shell.arguments(command.words[0])
    return arguments[0].text if arguments and arguments[0].known else None


def _assign(sourced: Sourced, assignments: Iterable[Assignment], certain: bool) -> None:
    for assignment in assignments:
        sourced.shell.assign(assignment, certain=certain)
        sourced.assigned[assignment.name] = assignment.start


def _set(shell: Shell, words: Sequence[str | None]) -> None:
    for word, following in zip(words, [*words[1:], None], strict=True):
        if word is not None and (re.fullmatch(r"[-+][a-zA-Z]*a[a-zA-Z]*", word) or following == "allexport"):
            shell.exports_all = word.startswith("-")


def _declare(sourced: Sourced, command: Command, certain: bool) -> None:
    words = [word.literal for word in command.words]
    if words[0] == "export" or any(re.fullmatch(r"-[a-zA-Z]*x[a-zA-Z]*", word or "") for word in words[1:]):
        for word in command.words[1:]:
            assignment = split_assignment(word)
            sourced.shell.exported.add(assignment.name if assignment is not None else word.literal or "")
    shell = sourced.shell
    # All words are expanded before the first of them is set.
    given: list[tuple[str, Value, bool, int]] = []
    for word in command.words[1:]:
        assignment = split_assignment(word)
        if assignment is not None and assignment.value.elements is not None:
            _assign(sourced, [assignment], certain)
        elif assignment is not None:
            value = None if assignment.subscript else shell.value(assignment.value)
            given.append((assignment.name, value, assignment.append, assignment.start))
        else:
            given += [
                made for argument in shell.arguments(word) if (made := _expanded_assignment(argument)) is not None
            ]
    for name, value, append, mark in given:
        shell.store(name, value if certain else None, append=append)
        sourced.assigned[name] = mark
        if shell.exports_all:
            shell.exported.add(name)


def _expanded_assignment(argument: Argument) -> tuple[str, Value, bool, int] | None:
    """What `export` makes of a word that becomes an assignment only when it is expanded."""
    match = _EXPANDED.match(argument.text)
    if match is None or not argument.known:
        return None
    value = Traced(argument.text[match.end() :], argument.marks[match.end() :])
    return match[1], value, bool(match[2]), argument.start


def _unset(shell: Shell, name: str | None, certain: bool) -> None:
    if name is None or name.startswith("-"):
        return
    shell.arrays.pop(name, None)
    if certain and shell.known:
        shell.variables.pop(name, None)
    else:
        shell.variables[name] = NOTHING if certain else None


def _read_file(
    sourced: Sourced, command: Command, certain: bool, read: Callable[[str], Parsed | None] | None, depth: int
) -> None:
    path = sourced.shell.value(command.words[1])
    parsed = read(path.text) if read is not None and path is not None and depth < 5 else None
    if parsed is None:
        # It may set anything.
        sourced.shell.known = False
        return
    if not certain:
        parsed = Parsed([Command(c.assignments, c.words, certain=False) for c in parsed.commands])
    inner = run_assignments(parsed, sourced.shell, read, depth + 1)
    sourced.assigned.update(inner.assigned)
