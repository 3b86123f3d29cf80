"""What one check knows: the texts it has read, what it found in them, and how it gets further ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from kvexporter.lint.bash_commands import Parsed
from kvexporter.lint.bash_environment import check_bash_environment
from kvexporter.lint.findings import Finding, Findings, Rules
from kvexporter.lint.places import Book, Source
from kvexporter.lint.systemd_checks import check_systemd_environment
from kvexporter.lint.words import UNKNOWN, Argument, Value

EnvironmentRules = Literal["bash", "systemd"]


@dataclass(frozen=True, slots=True)
class FileText:
    """A file that a unit or script leads to. Without a text `problem` says why."""

    text: str | None
    problem: str = ""
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """That a file was read, by whose rules, and why by these."""

    file: str
    rules: str
    why: str


@dataclass(slots=True)
class Context:
    """The state of one check. `read` gives the text of a file by its path."""

    read: Callable[[str], FileText]
    build: int | None = None
    """The build of llama-server; None: any."""
    book: Book = field(default_factory=Book)
    found: dict[Finding, None] = field(default_factory=dict)
    starts: int = 0
    """Command lines of llama-servers that were met in units and scripts."""
    readings: list[Reading] = field(default_factory=list)
    parsed: dict[str, Parsed] = field(default_factory=dict)
    """Files that scripts read with `.`, by their paths."""
    scripts: set[str] = field(default_factory=set)
    """Scripts that have been judged."""
    environments: dict[tuple[str, str], dict[str, Value]] = field(default_factory=dict)
    """Path and rules of the environment files that have been judged, and what they set."""

    def out(self, rules: Rules) -> Findings:
        """Where findings by these rules go."""
        out = Findings(self.book, rules)
        out.found = self.found
        return out

    def environment(self, source: Source, rules: EnvironmentRules, *, alone: bool) -> dict[str, Value]:
        """Judge an environment file; give what it sets. If not `alone`, what uses it is judged elsewhere."""
        check = check_bash_environment if rules == "bash" else check_systemd_environment
        return check(source, self.out(rules), self.build, alone=alone)

    def environment_at(self, path: str, rules: EnvironmentRules, text: str, why: str) -> dict[str, Value]:
        """The same for a file that something leads to; judged when it is met for the first time."""
        known = self.environments.get((path, rules))
        if known is None:
            self.readings.append(Reading(path, rules, why))
            known = self.environment(self.book.add(path, text), rules, alone=False)
            self.environments[path, rules] = known
        return known


def marked(argument: Argument) -> Argument:
    """The argument, as unknown if something unknown is in it."""
    if UNKNOWN in argument.text and argument.known:
        return Argument(argument.text, False, argument.marks, argument.start, argument.end, True, argument.split)
    return argument
