"""Environment files as systemd's EnvironmentFile= reads them: no shell, so no expansion, no commands, no `export`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

from kvexporter.lint.places import Traced

_WHITE = " \t\n\r"
_NEWLINE = "\n\r"
_COMMENT = "#;"
_ESCAPED_IN_DOUBLE_QUOTES = '"\\`$'
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_EXPANDS = re.compile(r"\$[A-Za-z_{(]|`", re.ASCII)
_NOT_UTF8 = re.compile("[\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]|[\U0001fffe-\U0001ffff]")


@dataclass(slots=True)
class Setting:
    """One `NAME=value`."""

    name: str
    value: Traced
    start: int
    """Mark of the name's first character."""
    valid: bool
    """systemd takes the name; else it ignores the line."""
    quotes_inside: int | None = None
    """Mark of a quote that is part of the value because the value does not begin with it."""
    hash_sign: int | None = None
    """Mark of a # outside quotes that bash would take for the start of a comment."""
    dollar: int | None = None
    """Mark of a $ or backtick that bash would expand."""


@dataclass(slots=True)
class SystemdEnvironment:
    """What systemd makes of a file."""

    settings: list[Setting] = field(default_factory=list)
    no_assignments: list[tuple[int, str]] = field(default_factory=list)
    """Lines without `=`: mark and text. They are ignored."""
    continued_comments: list[int] = field(default_factory=list)
    """Backslashes at the end of a comment, which make the next line a part of it."""
    unclosed: int | None = None
    """A quote that nothing closes: the rest of the file is its value."""
    refused: tuple[int, str] | None = None
    """systemd does not start the unit because of what stands here."""

    def variables(self) -> dict[str, Traced]:
        """What the unit gets. Nothing if systemd refuses the file."""
        if self.refused is not None:
            return {}
        return {setting.name: setting.value for setting in self.settings if setting.valid}


class _State(Enum):
    BEFORE_NAME = auto()
    NAME = auto()
    BEFORE_VALUE = auto()
    VALUE = auto()
    ESCAPE = auto()
    SINGLE = auto()
    DOUBLE = auto()
    DOUBLE_ESCAPE = auto()
    COMMENT = auto()
    COMMENT_ESCAPE = auto()


class _Reader:
    """systemd's reader of environment files, state by state (as of version 252)."""

    def __init__(self, whole: Traced) -> None:
        self.whole = whole
        self.result = SystemdEnvironment()
        self.state = _State.BEFORE_NAME
        self.at = 0
        self._begin(0)

    def _begin(self, at: int) -> None:
        self.name_start = at
        self.name: list[str] = []
        self.value: list[str] = []
        self.marks: list[int] = []
        self.kept = 0  # characters of the value without white space at its end
        self.quote: int | None = None
        self.quotes_inside: int | None = None
        self.hash_sign: int | None = None
        self.dollar: int | None = None

    def _mark(self, at: int) -> int:
        marks = self.whole.marks
        return marks[at] if at < len(marks) else (marks[-1] + 1 if marks else 0)

    def give(self, character: str, *, bare: bool = False, white: bool = False) -> None:
        mark = self._mark(self.at)
        self.value.append(character)
        self.marks.append(mark)
        if bare and character == "#" and self.hash_sign is None and self.whole.text[self.at - 1] in " \t":
            self.hash_sign = mark
        expands = (bare or self.state is _State.DOUBLE) and _EXPANDS.match(self.whole.text, self.at) is not None
        if expands and self.dollar is None:
            self.dollar = mark
        if not white:
            self.kept = len(self.value)

    def push(self, *, chomp: bool) -> None:
        size = self.kept if chomp else len(self.value)
        name = "".join(self.name).rstrip(_WHITE)
        value = Traced("".join(self.value[:size]), self.marks[:size])
        start = self._mark(self.name_start)
        if _NOT_UTF8.search(name + value.text) and self.result.refused is None:
            self.result.refused = (start, "it is not UTF-8")
        self.result.settings.append(
            Setting(
                name, value, start, _NAME.fullmatch(name) is not None, self.quotes_inside, self.hash_sign, self.dollar
            )
        )
        self._begin(self.at)

    def run(self) -> SystemdEnvironment:
        text = self.whole.text
        nul = text.find("\0")
        if nul >= 0:
            self.result.refused = (self._mark(nul), "it holds a NUL byte")
            text = text[:nul]
        for self.at, character in enumerate(text):
            self._take(character)
        self.at = len(text)
        if self.state in (_State.VALUE, _State.BEFORE_VALUE, _State.ESCAPE):
            self.push(chomp=self.state is _State.VALUE)
        elif self.state in (_State.SINGLE, _State.DOUBLE, _State.DOUBLE_ESCAPE):
            self.result.unclosed = self.quote
            self.push(chomp=False)
        elif self.state is _State.NAME:
            self._no_assignment()
        return self.result

    def _no_assignment(self) -> None:
        self.result.no_assignments.append((self._mark(self.name_start), "".join(self.name)))

    def _take(self, character: str) -> None:
        state = self.state
        if state is _State.BEFORE_NAME:
            if character in _COMMENT:
                self.state = _State.COMMENT
            elif character not in _WHITE:
                self._begin(self.at)
                self.name.append(character)
                self.state = _State.NAME
        elif state is _State.NAME:
            if character in _NEWLINE:
                self._no_assignment()
                self.state = _State.BEFORE_NAME
            elif character == "=":
                self.state = _State.BEFORE_VALUE
            else:
                self.name.append(character)
        elif state is _State.COMMENT:
            if character == "\\":
                self.state = _State.COMMENT_ESCAPE
            elif character in _NEWLINE:
                self.state = _State.BEFORE_NAME
        elif state is _State.COMMENT_ESCAPE:
            if character in _NEWLINE:
                self.result.continued_comments.append(self._mark(self.at - 1))
            self.state = _State.COMMENT
        else:
            self._take_value(character)

    def _take_value(self, character: str) -> None:
        state = self.state
        if state is _State.BEFORE_VALUE:
            if character in _NEWLINE:
                self.state = _State.BEFORE_NAME
                self.push(chomp=False)
            elif character in "'\"":
                self.quote = self._mark(self.at)
                self.state = _State.SINGLE if character == "'" else _State.DOUBLE
            elif character == "\\":
                self.state = _State.ESCAPE
            elif character not in _WHITE:
                self.give(character, bare=True)
                self.state = _State.VALUE
        elif state is _State.VALUE:
            if character in _NEWLINE:
                self.state = _State.BEFORE_NAME
                self.push(chomp=True)
            elif character == "\\":
                self.kept = len(self.value)
                self.state = _State.ESCAPE
            else:
                if character in "'\"" and self.quotes_inside is None:
                    self.quotes_inside = self._mark(self.at)
                self.give(character, bare=True, white=character in _WHITE)
        elif state is _State.ESCAPE:
            if character not in _NEWLINE:
                self.give(character)
            self.state = _State.VALUE
        elif state is _State.SINGLE:
            if character == "'":
                self.state = _State.BEFORE_VALUE
            else:
                self.give(character)
        elif state is _State.DOUBLE:
            if character == '"':
                self.state = _State.BEFORE_VALUE
            elif character == "\\":
                self.state = _State.DOUBLE_ESCAPE
            else:
                self.give(character)
        else:
            if character in _ESCAPED_IN_DOUBLE_QUOTES:
                self.give(character)
            elif character != "\n":
                self.give("\\")
                self.give(character)
            self.state = _State.DOUBLE


def read_systemd_environment(whole: Traced) -> SystemdEnvironment:
    """Read a file as systemd does. Never raises."""
    return _Reader(whole).run()
