"""Judges environment files, scripts, units and command lines. Nothing of them is executed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kvexporter.lint.bash_assignments import READS, Sourced, apply, command_name
from kvexporter.lint.bash_commands import parse_commands
from kvexporter.lint.bash_values import Shell
from kvexporter.lint.context import Context, EnvironmentRules, FileText, Reading
from kvexporter.lint.findings import Finding, in_order
from kvexporter.lint.places import Book, Source
from kvexporter.lint.programs import find_start
from kvexporter.lint.script_checks import check_script
from kvexporter.lint.server_checks import check_server
from kvexporter.lint.server_command import ServerCommand
from kvexporter.lint.unit_checks import check_unit
from kvexporter.lint.words import Argument, Value

COMMAND_LINE = "command line"
"""What a command line is called in findings."""


class Linter:
    """One check. `read` gives the text of files that units and scripts name; `build` is None for any build."""

    def __init__(self, read: Callable[[str], FileText], build: int | None = None) -> None:
        self._context = Context(read, build)

    @property
    def readings(self) -> list[Reading]:
        """What was read, by whose rules."""
        return self._context.readings

    def findings(self) -> list[Finding]:
        """All that was found, by file and line. What both bash's and systemd's rules find is one finding."""
        merged: dict[tuple[str, str, int, int, str], Finding] = {}
        for found in self._context.found:
            key = (found.code, found.file, found.line, found.column, found.text)
            before = merged.get(key)
            if before is None:
                merged[key] = found
            elif found.rules not in before.rules:
                merged[key] = replace(before, rules=f"{before.rules}, {found.rules}")
        return in_order(merged.values(), [reading.file for reading in self.readings])

    def environment_file(self, name: str, text: str, rules: Sequence[EnvironmentRules], why: str) -> None:
        """Judge an environment file by the rules of each that reads it."""
        self.readings.append(Reading(name, " and ".join(rules), why))
        source = self._context.book.add(name, text)
        values = [self._context.environment(source, one, alone=True) for one in rules]
        if len(values) == 2:
            self._compare(source, values[0], values[1])

    def _compare(self, source: Source, bash: Mapping[str, Value], systemd: Mapping[str, Value]) -> None:
        """Values that look sound to both, and are not the same."""
        context = self._context
        told = {found.line for found in context.found if found.file == source.name}
        for name, value in systemd.items():
            other = bash.get(name)
            if value is None or other is None or value.text == other.text or not len(value.marks):
                continue
            mark = value.marks[0]
            if context.book.place(mark).line not in told:
                context.out("bash").add(
                    "bash-and-systemd-differ", "warning", mark, f"bash and systemd read different values of {name}",
                    "They have other rules for backslashes and for what follows a quote. --as says who reads the file.",
                    rules="bash, systemd",
                )  # fmt: skip

    def script(self, name: str, text: str, why: str) -> None:
        """Judge the llama-server command lines of a shell script, and the environment files that it reads."""
        self.readings.append(Reading(name, "script", why))
        check_script(self._context, self._context.book.add(name, text).whole(), Shell(), "script", {})
        self._check_started(name)

    def unit(self, parts: Sequence[tuple[str, str]], why: str) -> None:
        """Judge a unit: its file and drop-ins (path and text, in the order of reading), and what they lead to."""
        check_unit(self._context, parts, why)
        self._check_started(parts[0][0] if parts else "")

    def _check_started(self, name: str) -> None:
        if not self._context.starts:
            self.readings.append(Reading(name, "nothing", "no command line of a llama-server was found in it"))

    def command_line(self, words: Sequence[str]) -> None:
        """Judge a llama-server's arguments as a program gets them, with or without its own name."""
        context = self._context
        self.readings.append(Reading(COMMAND_LINE, COMMAND_LINE, "given after --"))
        quoted = [shlex.quote(word) for word in words]
        source = context.book.add(COMMAND_LINE, " ".join(quoted))
        arguments: list[Argument] = []
        at = source.base
        for word, shown in zip(words, quoted, strict=True):
            arguments.append(Argument(word, True, [at] * len(word), at, at + len(shown)))
            at += len(shown) + 1
        start = find_start(arguments, context.book)
        given = ServerCommand(arguments, mark=source.base)
        if start is not None:
            given = ServerCommand(start.arguments, start.variables, start.starts, start.whole, source.base)
        check_server(given, context.out("command line"), context.build)


def reads_by_bash(text: str, path: str) -> bool:
    """Whether a script's text reads this file with `.` or `source`."""
    if path not in text:
        return False
    shell = Shell()
    sourced = Sourced(shell, {})
    for command in parse_commands(Book().add("", text).whole()).commands:
        if command_name(command, shell) in READS and len(command.words) > 1:
            value = shell.value(command.words[1])
            if value is not None and value.text == path:
                return True
        apply(sourced, command)
    return False
