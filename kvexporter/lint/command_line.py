"""A llama-server's arguments one by one: which options they give, and which of them the server would refuse."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvexporter.lint.findings import HIDDEN, Findings
from kvexporter.lint.options import Known, find, near, normal
from kvexporter.lint.options_history import FLASH_ATTENTION_TAKES_A_VALUE, SINCE
from kvexporter.lint.values import check_value
from kvexporter.lint.words import Argument

SECRETS = frozenset(("--api-key", "-hft"))
"""Options whose value is a secret, by their first spelling."""

_FLASH_WORDS = frozenset(("on", "off", "auto", "1", "0", "-1", "enabled", "disabled", "true", "false"))
# These took two values until 2026, the second one a number.
_ONCE_TWO_VALUES = frozenset(("--lora-scaled", "--control-vector-scaled"))
_REFUSED = "llama-server ends at once with “error: invalid argument: {}”."


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An option as it was given."""

    known: Known
    name: Argument
    values: tuple[Argument, ...]

    @property
    def option(self) -> str:
        """The option's first spelling: its name in lint."""
        return self.known.option.names[0]

    @property
    def end(self) -> int:
        return self.values[-1].end if self.values else self.name.end


@dataclass(slots=True)
class Given:
    """What a command line gives."""

    options: list[Occurrence] = field(default_factory=list)
    complete: bool = True
    """Nothing of it is unknown, so that what is missing is really not given."""

    def last(self, option: str) -> Occurrence | None:
        return next((found for found in reversed(self.options) if found.option == option), None)

    def canonical(self) -> list[str]:
        """The arguments without those that the server refuses or that are not known."""
        words: list[str] = []
        for found in self.options:
            if all(value.known for value in found.values):
                words += [normal(found.name.text), *(value.text for value in found.values)]
        return words


class Walk:
    """Goes through the arguments from left to right, as the server does."""

    def __init__(self, arguments: Sequence[Argument], out: Findings, build: int | None) -> None:
        self._arguments = arguments
        self._out = out
        self._build = build
        self._at = 0
        self._given = Given()

    def run(self) -> Given:
        while self._at < len(self._arguments):
            argument = self._arguments[self._at]
            self._at += 1
            if not argument.known:
                self._given.complete = False
                continue
            known = find(argument.text) if argument.text.startswith("-") else None
            if known is not None:
                self._option(argument, known)
            else:
                self._no_option(argument)
        return self._given

    def _peek(self, ahead: int = 0) -> Argument | None:
        at = self._at + ahead
        return self._arguments[at] if at < len(self._arguments) else None

    def _option(self, name: Argument, known: Known) -> None:
        self._age(name, known)
        count = self._count(name, known)
        values: list[Argument] = []
        for _ in range(count):
            value = self._peek()
            if value is None or (value.known and self._is_option(value.text)):
                self._missing(name, known, value)
                break
            if value.several:
                # It may be no word at all, or many.
                self._given.complete = False
            values.append(value)
            self._at += 1
            if value.split and value.known and value.text[:1] in ("'", '"'):
                self._quoted(value)
        if len(values) == count and check_value(known.option, name, values, self._out):
            self._given.options.append(Occurrence(known, name, tuple(values)))
        else:
            # What is missing may be what this was meant to be.
            self._given.complete = False

    def _is_option(self, text: str) -> bool:
        return text.startswith("-") and find(text) is not None

    def _count(self, name: Argument, known: Known) -> int:
        """How many values follow here; builds differ about some."""
        following = self._peek()
        takes = following is not None and (not following.known or following.text in _FLASH_WORDS)
        first = known.option.names[0]
        if first in ("-fa", "--log-colors") and not takes and (self._build or 0) < FLASH_ATTENTION_TAKES_A_VALUE:
            if self._build is None and (following is None or self._is_option(following.text)):
                self._out.add(
                    "missing-value", "warning" if first == "--log-colors" else "error", name.start,
                    f"{name.text} stands alone",
                    f"Only builds before September 2025 (b{FLASH_ATTENTION_TAKES_A_VALUE}) take it so; later ones need "
                    "on, off or auto after it, and end with an error.",
                    self._out.book.replaced(name.start, name.end, f"{name.text} on"),
                )  # fmt: skip
                return 0
            return 0 if self._build is not None else 1
        if first == "-fa" and takes and self._build is not None and self._build < FLASH_ATTENTION_TAKES_A_VALUE:
            return 0
        second = self._peek(1)
        if first in _ONCE_TWO_VALUES and second is not None and re.fullmatch(r"[0-9.]+", second.text):
            joined = f"{following.text}:{second.text}" if following is not None else ""
            self._out.add(
                "removed-option", "warning", name.start, f"{name.text} is followed by two words",
                "Builds of 2026 take FILE:SCALE in one word and refuse the second.",
                self._out.book.replaced(following.start, second.end, joined) if following is not None else "",
            )  # fmt: skip
            return 2
        return known.option.values

    def _age(self, name: Argument, known: Known) -> None:
        former, build = known.former, self._build
        out = self._out
        if former is not None:
            if former.last_build is not None and build is not None and build <= former.last_build:
                return
            certain = build is not None and former.last_build is not None
            instead = f" {former.instead} took its place." if former.instead else ""
            end = name.end
            if former.option.values and (value := self._peek()) is not None:
                end = value.end
            corrected = (
                out.book.replaced(name.start, name.end, former.instead)
                if former.instead
                else out.book.removed(name.start, end)
            )
            out.add(
                "removed-option", "error" if certain else "warning", name.start,
                f"{name.text} is known to builds until {former.until} only",
                f"Later builds end at once with “error: invalid argument: {name.text}”.{instead}", corrected,
            )  # fmt: skip
        elif known.option.removed:
            out.add(
                "removed-option", "error", name.start, f"{name.text} has been removed",
                f"llama-server ends at once and says: {known.option.removed}.",
            )  # fmt: skip
        since = SINCE.get(known.option.names[0])
        if since is not None and build is not None and build < since:
            out.add(
                "unknown-option", "error", name.start, f"{name.text} came with b{since}; this build is b{build}",
                _REFUSED.format(name.text), out.book.removed(name.start, name.end),
            )  # fmt: skip
        if known.option.names[0] == "-dt":
            out.add(
                "does-nothing", "warning", name.start, f"{name.text} does nothing any more",
                "Builds of 2026 only log that it is deprecated.",
            )  # fmt: skip

    def _missing(self, name: Argument, known: Known, following: Argument | None) -> None:
        if following is None:
            what = f"{name.text} is the last word: its value is missing"
            happens = "llama-server ends at once with “error while handling argument "
            happens += f'"{name.text}": expected value for argument”.'
        else:
            what = f"{name.text} has no value: {following.text} follows"
            happens = f"llama-server takes {following.text} for the value of {name.text}, and not as an option."
        self._out.add("missing-value", "error", name.start, what, happens)

    def _no_option(self, argument: Argument) -> None:
        text = argument.text
        book = self._out.book
        before, equals, value = text.partition("=")
        if text.startswith("-") and equals and (known := find(before)) is not None:
            shown = HIDDEN if known.option.names[0] in SECRETS else value
            self._out.add(
                "value-after-equals", "error", argument.start, f"{before}={shown}: llama-server takes no value after =",
                _REFUSED.format(f"{before}={shown}"),
                book.replaced(argument.start, argument.end, f"{before} {shlex.quote(value)}" if value else before),
            )  # fmt: skip
            return
        words = text.split()
        if len(words) > 1 and find(words[0]) is not None:
            self._together(argument, words)
        elif text[:1] in ("'", '"') and argument.split:
            self._quoted(argument)
        elif text.startswith("-") and text != "-":
            self._unknown(argument)
        else:
            self._stray(argument)

    def _quoted(self, argument: Argument) -> None:
        """Quotes that bash took for characters; the words up to the closing one were meant to be one."""
        self._out.add(
            "quotes-not-removed", "error", argument.start, "quotes inside a variable's value are no quotes to bash",
            "bash splits the variable at white space and passes the quotes on as part of the arguments.",
        )  # fmt: skip
        quote = argument.text[0]
        at = self._at
        if len(argument.text) > 1 and argument.text.endswith(quote):
            return
        while at < len(self._arguments) and self._arguments[at].split:
            at += 1
            if self._arguments[at - 1].text.endswith(quote):
                self._at = at
                return

    def _together(self, argument: Argument, words: list[str]) -> None:
        self._given.complete = False
        source = self._out.book.source(argument.start)
        written = source.text[argument.start - source.base : argument.end - source.base]
        bare = written.strip("\"'")
        if self._out.rules == "unit" and (braces := re.fullmatch(r"\$\{(\w+)\}", bare)):
            bare = f"${braces[1]}"
        self._out.add(
            "quoted-together", "error", argument.start,
            f"{len(words)} words are one argument here: {words[0]} …",
            _REFUSED.format(f"{words[0]} …") + " Quotes, and systemd's ${NAME}, keep a value in one argument.",
            self._out.book.replaced(argument.start, argument.end, bare) if bare != written else "",
        )  # fmt: skip

    def _unknown(self, argument: Argument) -> None:
        guess = near(argument.text)
        following = self._peek()
        if following is not None and not following.text.startswith("-"):
            # Probably its value: one mistake is told once.
            self._at += 1
        self._out.add(
            "unknown-option", "error", argument.start,
            f"no build of llama-server knows {argument.text}" + (f"; did you mean {guess}?" if guess else ""),
            _REFUSED.format(argument.text),
            self._out.book.replaced(argument.start, argument.end, guess) if guess else "",
        )  # fmt: skip
        # It may have been any option.
        self._given.complete = False

    def _stray(self, argument: Argument) -> None:
        book = self._out.book
        last = self._given.options[-1] if self._given.options else None
        after_flag = last is not None and not last.values
        if last is not None and after_flag and last.option == "--slots" and argument.text.isdigit():
            self._given.complete = False
            self._out.add(
                "slots-is-not-parallel", "error", last.name.start,
                f"--slots {argument.text}: --slots turns the endpoint /slots on; the number of slots is -np",
                _REFUSED.format(argument.text),
                book.replaced(
                    last.name.start, argument.end, "--slots" if self._given.last("-np") else f"-np {argument.text}"
                ),
            )  # fmt: skip
            return
        shown = argument.text
        if last is not None and last.option in SECRETS:
            shown = HIDDEN
        what = f"“{shown}” belongs to no option"
        if last is not None and after_flag:
            what += f": {last.name.text} takes no value"
        self._out.add(
            "stray-word", "error", argument.start, what, _REFUSED.format(shown),
            book.removed(argument.start, argument.end) if argument.text else "",
        )  # fmt: skip
