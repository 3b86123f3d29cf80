"""A shell's variables, and what bash makes of words with them: values and arguments, as far as that can be told."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from kvexporter.lint.bash_commands import Assignment
from kvexporter.lint.bash_words import Part, Word
from kvexporter.lint.places import NOTHING, Traced
from kvexporter.lint.words import UNKNOWN, Argument, Value

LONGEST = 131_072
"""Characters of one value: Linux takes no longer argument. What grows beyond is unknown."""

_BUDGET = 2_000_000


@dataclass(slots=True)
class Shell:
    """The variables of a shell. A value of None is one that only running the text could tell."""

    variables: dict[str, Value] = field(default_factory=dict)
    arrays: dict[str, list[Word]] = field(default_factory=dict)
    known: bool = False
    """Names that are not here are unset; else they are unknown."""
    budget: int = _BUDGET
    """Characters that expansions may still give."""
    exported: set[str] = field(default_factory=set)
    """Variables that programs get which it starts."""
    exports_all: bool = False
    """`set -a` is in force."""

    def lookup(self, name: str) -> Value:
        if name in self.variables:
            return self.variables[name]
        return NOTHING if self.known and name not in self.arrays else None

    def value(self, word: Word) -> Value:
        """The word as the value of an assignment: expanded, not split."""
        if word.elements is not None:
            return None
        pieces = [self._piece(part) for part in word.parts]
        if any(piece is None for piece in pieces):
            return None
        return self._joined([piece for piece in pieces if piece is not None])

    def _joined(self, pieces: Iterable[Traced]) -> Value:
        text: list[str] = []
        marks: list[int] = []
        size = 0
        for piece in pieces:
            size += len(piece.text)
            if size > LONGEST or size > self.budget:
                return None
            text.append(piece.text)
            marks.extend(piece.marks)
        self.budget -= size
        return Traced("".join(text), marks)

    def _piece(self, part: Part) -> Value:
        if part.kind == "text":
            return part.value
        if part.kind != "variable":
            return None
        value = self.lookup(part.value.text)
        if value is not None and not value.text and part.default is not None:
            at = part.value.marks[0] if len(part.value.marks) else 0
            return Traced(part.default, [at] * len(part.default))
        return value

    def arguments(self, word: Word) -> list[Argument]:
        """The word as arguments of a command: expanded and split, as bash does it."""
        if word.elements is not None:
            return [Argument(UNKNOWN, False, (), word.start, word.end)]
        parts = [part for part in word.parts if part.kind != "text" or part.value.text]
        if len(parts) == 1 and parts[0].kind == "array":
            elements = self.arrays.get(parts[0].value.text)
            if elements is not None and self.budget > 0:
                self.budget -= 20 * (1 + len(elements))
                return [argument for element in elements for argument in self._element(element)]
        return self._split(word)

    def _element(self, word: Word) -> list[Argument]:
        # An array in an array is not followed: it could hold itself.
        if any(part.kind == "array" for part in word.parts):
            return [Argument(UNKNOWN, False, (), word.start, word.end, several=True)]
        return self._split(word)

    def _split(self, word: Word) -> list[Argument]:
        splitter = _Splitter(word)
        for part in word.parts:
            piece = self._piece(part)
            if piece is None:
                splitter.unknown(quoted=part.quoted)
            elif part.kind == "text" or part.quoted:
                splitter.text(piece, whole=part.quoted)
            else:
                self.budget -= len(piece.text)
                if self.budget < 0:
                    splitter.unknown(quoted=False)
                else:
                    splitter.split(piece)
        return splitter.done()

    def copy(self) -> Shell:
        """For a shell of its own, whose variables do not come back."""
        exported = set(self.exported)
        return Shell(dict(self.variables), dict(self.arrays), self.known, self.budget, exported, self.exports_all)

    def assign(self, assignment: Assignment, *, certain: bool) -> None:
        name = assignment.name
        if self.exports_all:
            self.exported.add(name)
        if assignment.value.elements is not None and certain and not assignment.subscript:
            before = self.arrays.get(name, []) if assignment.append else []
            self.arrays[name] = [*before, *assignment.value.elements]
            self.variables.pop(name, None)
            return
        if assignment.append and assignment.value.elements is not None and name in self.arrays:
            # It may have these; what they are is worth checking.
            self.arrays[name] = [*self.arrays[name], *assignment.value.elements]
            return
        value = self.value(assignment.value) if certain and not assignment.subscript else None
        self.store(name, value, append=assignment.append)

    def store(self, name: str, value: Value, *, append: bool) -> None:
        """Set a variable to a value that has been expanded."""
        self.arrays.pop(name, None)
        if append and value is not None:
            before = self.lookup(name)
            value = None if before is None else self._joined((before, value))
        self.variables[name] = value


class _Splitter:
    """Puts the arguments together that one word becomes."""

    def __init__(self, word: Word) -> None:
        self._word = word
        self._done: list[Argument] = []
        self._text: list[str] = []
        self._marks: list[int] = []
        self._known = True
        self._begun = False
        self._several = False
        self._from_split = False

    def text(self, piece: Traced, *, whole: bool) -> None:
        self._text.append(piece.text)
        self._marks.extend(piece.marks)
        self._begun = self._begun or whole or bool(piece.text)

    def unknown(self, *, quoted: bool) -> None:
        self._text.append(UNKNOWN)
        self._marks.append(self._word.start)
        self._known = False
        self._begun = True
        self._several = self._several or not quoted

    def split(self, piece: Traced) -> None:
        at = 0
        for match in re.finditer(r"[ \t\n]+", piece.text):
            if match.start() > at:
                self.text(piece.cut(at, match.start()), whole=False)
                self._from_split = True
            self._end()
            at = match.end()
        if at < len(piece.text):
            self.text(piece.cut(at, len(piece.text)), whole=False)
            self._from_split = True

    def _end(self) -> None:
        if self._begun:
            start, end = self._word.start, self._word.end
            if self._from_split and self._marks:
                start, end = self._marks[0], self._marks[-1] + 1
            self._done.append(
                Argument(
                    "".join(self._text), self._known, tuple(self._marks), start, end, self._several, self._from_split
                )
            )
        self._text, self._marks = [], []
        self._known, self._begun, self._several, self._from_split = True, False, False, False

    def done(self) -> list[Argument]:
        self._end()
        return self._done
