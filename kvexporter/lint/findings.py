"""A finding: what is wrong where, what would happen, and the line as it should be. Secrets are kept out of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kvexporter.lint.places import Book

Severity = Literal["error", "warning", "note"]
"""error: the server will not start, or not as written; warning: it starts, but does something else than it seems;
note: it works, and something is missing for watching it."""

SEVERITIES: tuple[Severity, ...] = ("note", "warning", "error")

Rules = Literal["bash", "systemd", "script", "unit", "command line"]
"""By whose rules the text was read."""

# Words after the key that belong to no option are hidden too: they may be the rest of it.
_SECRET_OPTION = re.compile(
    r"(--?(?:[\w-]*-)?(?:api-?key|hf-?token|secret|password)s?|-hft)(?![\w-])([ \t=]+)"
    r"(\"[^\"]*\"?|'[^']*'?|[^\s\"']+)(?:[ \t]+(?![-&|;<>])[^\s\"']+)*"
)
_SECRET_IN_URL = re.compile(r"(?<=://)[^/\s@]*(?=@)")
_SECRET_NAME = re.compile(r"(?i)(?:key|token|secret|passw(?:or)?d)s?$")
_ASSIGNED = re.compile(r"(?i)\b(\w*(?:key|token|secret|passw(?:or)?d)s?)([ \t]*=[ \t]*)(\"[^\"]*\"?|'[^']*'?|\S.*)")
HIDDEN = "***"
MOST = 500
"""Findings that are kept: whoever has more has another problem."""
LONGEST_LINE = 4096
"""Characters of a corrected line; longer ones are not shown."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    code: str
    severity: Severity
    file: str
    line: int
    column: int
    rules: str
    """By whose rules the text was read; several are joined by commas."""
    text: str
    """What is wrong."""
    consequence: str
    """What would happen."""
    correction: str
    """The line as it should be; empty where there is no one way to mend it."""


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is taken to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def without_secrets(text: str) -> str:
    """Keep keys and tokens off the screen: values of options and variables that hold them."""
    text = _SECRET_OPTION.sub(rf"\1\2{HIDDEN}", text)
    return _SECRET_IN_URL.sub(HIDDEN, _ASSIGNED.sub(rf"\1\2{HIDDEN}", text))


class Findings:
    """Collects findings by the marks of a book."""

    def __init__(self, book: Book, rules: Rules) -> None:
        self.book = book
        self.rules: Rules = rules
        self.found: dict[Finding, None] = {}

    def add(
        self, code: str, severity: Severity, mark: int, text: str, consequence: str, correction: str = "",
        rules: str | None = None,
    ) -> None:  # fmt: skip
        """Add one; `mark` is where it stands, `correction` the line as it should be."""
        if len(self.found) >= MOST:
            return
        if len(correction) > LONGEST_LINE:
            correction = ""
        place = self.book.place(mark)
        said = (without_secrets(part) for part in (text, consequence, correction))
        found = Finding(code, severity, place.file, place.line, place.column, rules or self.rules, *said)
        self.found.setdefault(found)


def in_order(findings: Iterable[Finding], files: Iterable[str]) -> list[Finding]:
    """By file in the order in which the files were read, then by line and column."""
    order = {name: number for number, name in enumerate(files)}
    return sorted(findings, key=lambda found: (order.get(found.file, len(order)), found.line, found.column))
