"""systemd's command lines: ExecStart= and Environment= split into words, with quotes, escapes and variables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kvexporter.lint.places import Traced
from kvexporter.lint.words import UNKNOWN, Argument, Value

_WHITE = " \t\n\r"
_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
    "'": "'",
    "s": " ",
}
_NUMBERED = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-7]{3})")
_BRACED = re.compile(r"\$\$|\$\{([^}:]*)\}")
_SPECIFIER = re.compile(r"%([%A-Za-z])")


class UnbalancedError(Exception):
    """A quote is not closed: systemd ignores the line."""

    def __init__(self, mark: int) -> None:
        super().__init__("a quote is not closed")
        self.mark = mark


def split_words(value: Traced, *, escapes: bool = True, relaxed: bool = False) -> list[Argument]:
    """Split at white space; quotes hold words together anywhere. UnbalancedError if a quote stays open.

    With `escapes` backslashes give C's escapes, else each only keeps the next character. With `relaxed` quotes may stay
    open.
    """
    words: list[Argument] = []
    text, marks = value.text, value.marks
    at = 0
    while True:
        while at < len(text) and text[at] in _WHITE:
            at += 1
        if at >= len(text):
            return words
        begin = at
        characters: list[str] = []
        traced: list[int] = []
        quote = ""
        opened = at
        while at < len(text) and (quote or text[at] not in _WHITE):
            character = text[at]
            if quote and character == quote:
                quote = ""
            elif not quote and character in "'\"":
                quote, opened = character, at
            elif character == "\\":
                given, length = _escape(text, at, escapes=escapes)
                characters.append(given)
                traced.extend([marks[at]] * len(given))
                at = min(at + length, len(text))
                continue
            else:
                characters.append(character)
                traced.append(marks[at])
            at += 1
        if quote and not relaxed:
            raise UnbalancedError(marks[opened])
        if text[begin:at] == "\\;":  # so a lone ; is passed on
            characters, traced = [";"], [marks[begin]]
        words.append(Argument("".join(characters), True, tuple(traced), marks[begin], marks[at - 1] + 1))


def _escape(text: str, at: int, *, escapes: bool) -> tuple[str, int]:
    """What the backslash at `at` gives, and how many characters it takes."""
    following = text[at + 1 : at + 2]
    if not escapes:
        return following, 2
    if following in _SIMPLE and following:
        return _SIMPLE[following], 2
    numbered = _NUMBERED.match(text, at + 1)
    if numbered is None:
        return "\\" + following, 2  # systemd warns and keeps it
    number = int(numbered[4], 8) if numbered[4] else int(numbered[1] or numbered[2] or numbered[3], 16)
    character = chr(number) if 0 < number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else UNKNOWN
    return character, 1 + len(numbered[0])


@dataclass(slots=True)
class UnitEnvironment:
    """The variables of a unit's process."""

    variables: dict[str, Value] = field(default_factory=dict)
    known: bool = True
    """Names that are not here are unset, but for those that systemd itself sets."""

    def lookup(self, name: str) -> Value:
        if name in self.variables:
            return self.variables[name]
        return Traced("", ()) if self.known and name not in SYSTEMD_SETS else None


SYSTEMD_SETS = frozenset(
    ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID",
     "MAINPID", "STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY",
     "CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "TERM", "WATCHDOG_USEC", "LISTEN_FDS")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Execution:
    """One command of an Exec line."""

    program: Argument
    arguments: list[Argument]


def executions(value: Traced, environment: UnitEnvironment) -> list[Execution]:
    """The commands of an ExecStart= line with their arguments as the process gets them."""
    found: list[Execution] = []
    current: list[Argument] = []
    for word in [*split_words(value), None]:
        # A lone ; parts commands; with a backslash it is an argument, which split_words leaves as it stands.
        if word is None or (word.text == ";" and word.end - word.start == 1):
            if current:
                found.append(_execution(current, environment))
            current = []
        else:
            current.append(word)
    return found


def _execution(words: list[Argument], environment: UnitEnvironment) -> Execution:
    program = words[0]
    length = len(program.text) - len(program.text.lstrip("-@:+!|"))
    prefix = program.text[:length]
    bare = Argument(program.text[length:], program.known, program.marks[length:], program.start + length, program.end)
    words = [_specified(word) for word in words[1 + ("@" in prefix) :]]
    if ":" in prefix:
        return Execution(_specified(bare), words)
    return Execution(_specified(bare), [argument for word in words for argument in _expanded(word, environment)])


def _specified(word: Argument) -> Argument:
    """With %% as % and other specifiers unknown."""
    if "%" not in word.text:
        return word
    text: list[str] = []
    marks: list[int] = []
    known = word.known
    at = 0
    for match in _SPECIFIER.finditer(word.text):
        text.append(word.text[at : match.start()])
        marks.extend(word.marks[at : match.start()])
        text.append("%" if match[1] == "%" else UNKNOWN)
        marks.append(word.marks[match.start()])
        known = known and match[1] == "%"
        at = match.end()
    text.append(word.text[at:])
    marks.extend(word.marks[at:])
    return Argument("".join(text), known, tuple(marks), word.start, word.end)


def _expanded(word: Argument, environment: UnitEnvironment) -> list[Argument]:
    text = word.text
    if len(text) > 1 and text[0] == "$" and text[1] not in "{$":
        value = environment.lookup(text[1:])
        if value is None:
            return [Argument(UNKNOWN, False, (), word.start, word.end, several=True)]
        return split_words(value, escapes=False, relaxed=True)
    if "$" not in text:
        return [word]
    return [_with_braced(word, environment)]


def _with_braced(word: Argument, environment: UnitEnvironment) -> Argument:
    text: list[str] = []
    marks: list[int] = []
    known = word.known
    at = 0
    for match in _BRACED.finditer(word.text):
        text.append(word.text[at : match.start()])
        marks.extend(word.marks[at : match.start()])
        value = (
            Traced("$", word.marks[match.start() : match.start() + 1])
            if match[1] is None
            else environment.lookup(match[1])
        )
        if value is None:
            known = False
            value = Traced(UNKNOWN, word.marks[match.start() : match.start() + 1])
        text.append(value.text)
        marks.extend(value.marks)
        at = match.end()
    text.append(word.text[at:])
    marks.extend(word.marks[at:])
    return Argument("".join(text), known, tuple(marks), word.start, word.end)


def read_environment_entry(value: Traced) -> dict[str, Traced]:
    """The variables of an Environment= line; words that are no assignments are ignored, as systemd does."""
    found: dict[str, Traced] = {}
    for word in split_words(value):
        word = _specified(word)
        name, equals, _ = word.text.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII) and word.known:
            found[name] = Traced(word.text[len(name) + 1 :], word.marks[len(name) + 1 :])
    return found
