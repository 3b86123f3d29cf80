"""One start of a llama-server: what is given, what the server makes of it, and how its text would be corrected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvexporter.lint.command_line import Given, Occurrence
from kvexporter.lint.options import find_variable
from kvexporter.lint.places import Book
from kvexporter.lint.values import wrong_value
from kvexporter.lint.words import Argument, Value
from kvexporter.llama.launch import LaunchOptions, parse_launch


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """What is known of one start."""

    arguments: Sequence[Argument]
    variables: Mapping[str, Value] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    """Variable → mark of its assignment."""
    whole: bool = True
    """All arguments and variables are here; else only some, and nothing is said of what is not given."""
    mark: int = 0
    """Where the command starts, for what is said of all of it."""


class UnderstoodCommand:
    """A start as the server understands it. `given`: what the walk through its arguments found; `build`: None for any.

    What corrects returns the line as it should be, or nothing where there is no text to correct.
    """

    def __init__(self, command: ServerCommand, given: Given, book: Book, build: int | None) -> None:
        self.variables = command.variables
        self.starts = command.starts
        self.given = given
        self.build = build
        self._command = command
        self._book = book
        variables = {name: _readable(name, value) for name, value in command.variables.items() if find_variable(name)}
        self._unknown_variables = any(value is None for value in variables.values())
        environment = {name: value.text for name, value in variables.items() if value is not None}
        self.launch: LaunchOptions = parse_launch(given.canonical(), environment)

    # ---- what is known ---------------------------------------------------------------------------------------------

    @property
    def all_known(self) -> bool:
        """Whether what is not given here is not given at all."""
        unknown_value = any(not value.known for found in self.given.options for value in found.values)
        complete = self._command.whole and self.given.complete
        return complete and not unknown_value and not self._unknown_variables and not self._has_presets

    @property
    def is_router(self) -> bool:
        """It is known that no model is given: by a router's own options, or since all that is given is here."""
        own = self._has_presets or self.is_given("--models-dir", "LLAMA_ARG_MODELS_DIR")
        return self.launch.router and (own or self.all_known)

    @property
    def _has_presets(self) -> bool:
        """A router's file says more of each model; what is given here counts for all of them."""
        return self.is_given("--models-preset", "LLAMA_ARG_MODELS_PRESET")

    def is_given(self, option: str, variable: str) -> bool:
        """Whether an option is given, on the command line or by its variable."""
        return self.given.last(option) is not None or variable in self.variables

    # ---- where it stands -------------------------------------------------------------------------------------------

    def at(self, option: str, *variables: str) -> int:
        """Where an option is given, on the command line or by a variable."""
        found = self.given.last(option)
        if found is not None:
            return found.name.start
        return next((self.starts[name] for name in variables if name in self.starts), self.start)

    @property
    def start(self) -> int:
        """Where the command starts."""
        if self._command.arguments:
            return self._command.mark or self._command.arguments[0].start
        return next(iter(self.starts.values()), self._command.mark)

    # ---- how it would be corrected ---------------------------------------------------------------------------------

    def added(self, words: str) -> str:
        """The command's last line with more words."""
        if not self._command.arguments:
            return ""
        end = self._command.arguments[-1].end
        return self._book.replaced(end, end, f" {words}")

    def added_after(self, found: Occurrence | None, words: str) -> str:
        """The line with more words behind an option's name."""
        return "" if found is None else self._book.replaced(found.name.end, found.name.end, f" {words}")

    def removed(self, found: Occurrence | None) -> str:
        """The line without an option and its values."""
        return "" if found is None else self._book.removed(found.name.start, found.end)

    def with_value(self, option: str, value: str) -> str:
        """The line with another value of an option."""
        found = self.given.last(option)
        if found is None or not found.values:
            return ""
        return self._book.replaced(found.values[0].start, found.values[0].end, value)


def _readable(name: str, value: Value) -> Value:
    """The value, as unknown if the server cannot read it: then it is not known what was meant."""
    known = find_variable(name)
    if known is None or value is None or wrong_value(known.option, value.text) is None:
        return value
    return None
