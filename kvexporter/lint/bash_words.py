"""Bash's words: splits a text into words and operators as bash does, without executing anything.

What only running it could tell (commands in `$(…)`, arithmetic, patterns) is marked as unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from kvexporter.lint.bash_quotes import ansi_c, closing
from kvexporter.lint.places import Traced

PartKind = Literal["text", "variable", "array", "unknown"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word."""

    kind: PartKind
    value: Traced
    """The text; for a variable or a whole array (`${name[@]}`) its name; for what is unknown nothing."""
    quoted: bool = False
    """Quotes keep it in one word."""
    default: str | None = None
    """Of `${name:-default}`."""


@dataclass(slots=True)
class Word:
    """One word as written. For `NAME=(…)` the elements stand in `elements`."""

    start: int
    """Mark of its first character."""
    end: int
    """One more than the mark of its last."""
    parts: list[Part] = field(default_factory=list)
    elements: list[Word] | None = None

    @property
    def literal(self) -> str | None:
        """Its text where nothing is expanded in it."""
        if any(part.kind != "text" for part in self.parts) or self.elements is not None:
            return None
        return "".join(part.value.text for part in self.parts)

    @property
    def plain(self) -> str | None:
        """Its text where nothing in it is quoted or expanded: only so is it a reserved word."""
        return self.literal if not any(part.quoted for part in self.parts) else None


@dataclass(frozen=True, slots=True)
class Token:
    """A word, an operator, or the end of a line, which counts as an operator."""

    start: int
    word: Word | None = None
    operator: str = ""


class UnclosedError(Exception):
    """A quote or bracket is not closed: bash stops reading here."""

    def __init__(self, mark: int, what: str) -> None:
        super().__init__(what)
        self.mark = mark
        self.what = what


_OPERATORS = re.compile(r"&>>|<<<|<<-|;;&|&&|\|\||;;|;&|\|&|&>|<<|>>|<&|>&|>\||<>|[()|&;<>]")
REDIRECTIONS = frozenset(("&>>", "<<<", "<<-", "&>", "<<", ">>", "<&", ">&", ">|", "<>", "<", ">"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NAME_GOES_ON = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
_BRACED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^\"'`$\\{}]*))?\}", re.ASCII)
_WHOLE_ARRAY = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\[[@*]\]\}", re.ASCII)
_ARRAY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=", re.ASCII)
_BRACES = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_ENDS_WORD = frozenset(" \t\n;&|<>()")


class Lexer:
    """Gives the tokens of a text one by one."""

    def __init__(self, text: Traced) -> None:
        self._text = text.text
        self._whole = text
        self._at = 0
        self._heredocs: list[tuple[str, bool]] = []

    def _mark(self, at: int) -> int:
        marks = self._whole.marks
        return marks[at] if at < len(marks) else (marks[-1] + 1 if marks else 0)

    def next(self) -> Token | None:
        """The next token, None at the end; UnclosedError where bash would give up."""
        self._skip_blanks()
        text, at = self._text, self._at
        if at >= len(text):
            return None
        if text[at] == "\n":
            self._at += 1
            self._skip_heredocs()
            return Token(self._mark(at), operator="\n")
        # `<(…)` and `>(…)` are words.
        operator = None if text.startswith(("<(", ">("), at) else _OPERATORS.match(text, at)
        if operator is not None:
            self._at = operator.end()
            return Token(self._mark(at), operator=operator[0])
        return Token(self._mark(at), self._word())

    def expect_heredoc(self, delimiter: str, tabs: bool) -> None:
        """After the end of this line a text follows, up to a line that is `delimiter`."""
        self._heredocs.append((delimiter, tabs))

    def _skip_blanks(self) -> None:
        text = self._text
        while self._at < len(text):
            if text[self._at] in " \t":
                self._at += 1
            elif text.startswith("\\\n", self._at):
                self._at += 2
            elif text[self._at] == "#":
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            else:
                return

    def _skip_heredocs(self) -> None:
        for delimiter, tabs in self._heredocs:
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at = min(end + 1, len(self._text))
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
        self._heredocs.clear()

    def _word(self) -> Word:
        text = self._text
        word = Word(self._mark(self._at), 0)
        begin = self._at
        while self._at < len(text):
            at = self._at
            character = text[at]
            if character in "<>" and text.startswith("(", at + 1):
                self._at = closing(text, at + 2, ")")
                if self._at < 0:
                    raise UnclosedError(self._mark(at), f"{character}(")
                word.parts.append(Part("unknown", self._whole.cut(at, at)))
            elif character in _ENDS_WORD:
                if character == "(" and word.elements is None and _ARRAY.fullmatch(text, begin, at):
                    self._at += 1
                    word.elements = self._elements(at)
                    continue
                break
            else:
                self._piece(word, begin, at)
        word.end = self._mark(self._at - 1) + 1
        return word

    def _elements(self, opened: int) -> list[Word]:
        elements: list[Word] = []
        while True:
            token = self.next()
            if token is None:
                raise UnclosedError(self._mark(opened), "(")
            if token.operator == ")":
                return elements
            if token.word is not None:
                elements.append(token.word)

    def _piece(self, word: Word, begin: int, at: int) -> None:
        """Read one piece of a word outside quotes."""
        text, character = self._text, self._text[at]
        if character == "\\":
            if not text.startswith("\\\n", at) and at + 1 < len(text):
                word.parts.append(Part("text", self._whole.cut(at + 1, at + 2), quoted=True))
            elif at + 1 >= len(text):
                word.parts.append(Part("text", self._whole.cut(at, at + 1)))
            self._at = min(at + 2, len(text))
        elif character == "'":
            end = text.find("'", at + 1)
            if end < 0:
                raise UnclosedError(self._mark(at), "'")
            word.parts.append(Part("text", self._whole.cut(at + 1, end), quoted=True))
            self._at = end + 1
        elif character == '"':
            self._double_quoted(word, at, at + 1)
        elif text.startswith("$'", at):
            value, self._at = ansi_c(self._whole, at + 2)
            if self._at < 0:
                raise UnclosedError(self._mark(at), "$'")
            word.parts.append(Part("text", value, quoted=True))
        elif text.startswith('$"', at):
            self._double_quoted(word, at + 1, at + 2)
        elif character in "$`":
            word.parts.append(self._expansion(at, quoted=False))
        elif character == "~" and (not word.parts or self._before(word) in "=:"):
            word.parts.append(Part("unknown", self._whole.cut(at, at), quoted=True))
            self._at += 1
        elif (braces := _BRACES.match(text, at)) is not None and not _ARRAY.match(text, begin):
            word.parts.append(Part("unknown", self._whole.cut(at, at)))
            self._at = braces.end()
        else:
            end = at + 1
            while end < len(text) and text[end] not in _ENDS_WORD and text[end] not in "\\'\"$`~{":
                end += 1
            word.parts.append(Part("text", self._whole.cut(at, end)))
            self._at = end

    @staticmethod
    def _before(word: Word) -> str:
        last = word.parts[-1]
        return last.value.text[-1:] or "x" if last.kind == "text" and not last.quoted else "x"

    def _double_quoted(self, word: Word, opened: int, at: int) -> None:
        text = self._text
        start = at
        word.parts.append(Part("text", self._whole.cut(at, at), quoted=True))  # "" is a word too
        while at < len(text):
            character = text[at]
            if character in '"$`\\' and at > start:
                word.parts.append(Part("text", self._whole.cut(start, at), quoted=True))
            if character == '"':
                self._at = at + 1
                return
            if character == "\\":
                if text.startswith("\\\n", at):
                    start = at + 2
                elif at + 1 < len(text) and text[at + 1] in '$`"\\':
                    word.parts.append(Part("text", self._whole.cut(at + 1, at + 2), quoted=True))
                    start = at + 2
                else:
                    start = at
                    at += 1
                    continue
                at += 2
            elif character in "$`":
                word.parts.append(self._expansion(at, quoted=True))
                at = start = self._at
            else:
                at += 1
        raise UnclosedError(self._mark(opened), '"')

    def _name(self, start: int, end: int) -> Traced:
        """A variable's name, which may go on behind the end of a continued line."""
        text, marks = self._text[start:end], list(self._whole.marks[start:end])
        while self._text.startswith("\\\n", end):
            more = _NAME_GOES_ON.match(self._text, end + 2)
            if more is None:
                break
            text += more[0]
            marks += self._whole.marks[more.start() : more.end()]
            end = more.end()
        self._at = end
        return Traced(text, marks)

    def _expansion(self, at: int, *, quoted: bool) -> Part:
        """Read what begins with `$` or a backtick."""
        text = self._text
        braced = _BRACED.match(text, at)
        if braced is not None:
            self._at = braced.end()
            return Part("variable", self._whole.cut(*braced.span(1)), quoted, braced[2])
        array = _WHOLE_ARRAY.match(text, at)
        if array is not None:
            self._at = array.end()
            return Part("array", self._whole.cut(*array.span(1)), quoted)
        name = _NAME.match(text, at + 1) if text[at] == "$" else None
        if name is not None:
            return Part("variable", self._name(*name.span()), quoted)
        for opener, closer in (("$((", "))"), ("$(", ")"), ("${", "}"), ("$[", "]"), ("`", "`")):
            if text.startswith(opener, at):
                end = closing(text, at + len(opener), closer[-1])
                if end < 0:
                    raise UnclosedError(self._mark(at), opener)
                # `$((` opened two.
                self._at = end + 1 if closer == "))" and text.startswith(")", end) else end
                return Part("unknown", self._whole.cut(at, at), quoted)
        if at + 1 < len(text) and text[at + 1] in "@*#?$!-0123456789":
            self._at = at + 2
            return Part("unknown", self._whole.cut(at, at), quoted)
        self._at = at + 1
        return Part("text", self._whole.cut(at, at + 1), quoted)
