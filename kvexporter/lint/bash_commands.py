"""Bash's commands: assignments, words, and whether they run for certain. Compound commands are seen through."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kvexporter.lint.bash_words import REDIRECTIONS, Lexer, Part, Token, UnclosedError, Word
from kvexporter.lint.places import Traced


@dataclass(slots=True)
class Assignment:
    """`NAME=value` before a command or alone."""

    name: str
    value: Word
    append: bool
    subscript: bool
    start: int
    end: int


@dataclass(slots=True)
class Command:
    """A simple command."""

    assignments: list[Assignment] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    certain: bool = True
    """It runs whatever happens, and in this shell, not in a copy of it."""

    @property
    def start(self) -> int:
        return self.assignments[0].start if self.assignments else self.words[0].start

    @property
    def end(self) -> int:
        return self.words[-1].end if self.words else self.assignments[-1].end


@dataclass(frozen=True, slots=True)
class Parsed:
    """The commands of a text. `broken_at` is where bash stops reading with a syntax error, None if it does not."""

    commands: list[Command]
    broken_at: int | None = None
    broken_by: str = ""


_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^]]*\])?(\+?)=", re.ASCII)
_OPENS = {"if": "fi", "while": "done", "until": "done", "for": "done", "select": "done", "case": "esac", "{": "}"}
_CLOSES = frozenset(("fi", "done", "esac", "}"))
_GOES_ON = frozenset(("then", "elif", "else", "do", "!", "time"))
_SEPARATORS = frozenset(("\n", ";", "&", "&&", "||", "|", "|&"))


def split_assignment(word: Word) -> Assignment | None:
    """The word as an assignment; None if it is none."""
    first = word.parts[0] if word.parts else None
    if first is None or first.kind != "text" or first.quoted:
        return None
    text = first.value.text
    match = _ASSIGNED.match(text)
    if match is None:
        return None
    rest = first.value.cut(match.end(), len(text))
    value = Word(word.start + match.end(), word.end, [Part("text", rest), *word.parts[1:]], word.elements)
    return Assignment(match[1], value, bool(match[3]), match[2] is not None, word.start, word.end)


def parse_commands(text: Traced) -> Parsed:
    """All simple commands of a script, in its order. Never raises."""
    return _Parser(text).run()


class _SyntaxError(Exception):
    def __init__(self, mark: int, what: str) -> None:
        super().__init__(what)
        self.mark = mark
        self.what = what


class _Parser:
    def __init__(self, text: Traced) -> None:
        self._lexer = Lexer(text)
        self._commands: list[Command] = []
        self._current = Command()
        # What is open, and whether what is in it runs for certain.
        self._open: list[tuple[str, bool]] = []
        self._connected = False  # by && or || to what was before
        self._function = False  # the next compound command is a function's body
        self._something = False  # a compound command or redirection stands before the next separator
        self._pattern = False  # a pattern of `case` comes next
        self._line = 0  # commands before this line: bash runs a line only when it has read all of it

    def run(self) -> Parsed:
        try:
            while (token := self._lexer.next()) is not None:
                self._take(token)
            self._finish("\n")
        except (UnclosedError, _SyntaxError) as error:
            return Parsed(self._commands[: self._line], error.mark, error.what)
        return Parsed(self._commands)

    def _take(self, token: Token) -> None:
        if self._pattern:
            if token.operator == ")":
                self._pattern = False
            elif token.word is not None and token.word.plain == "esac":
                self._pattern = False
                self._close("esac", token.start)
        elif token.word is not None:
            self._take_word(token.word)
        elif token.operator in REDIRECTIONS:
            self._redirect(token)
        elif token.operator in _SEPARATORS:
            self._separate(token)
        elif token.operator == "(":
            self._parenthesis(token)
        elif token.operator == ")":
            self._finish("\n")
            self._close(")", token.start)
        else:  # ;; and its like
            self._finish("\n")
            if not self._open or self._open[-1][0] != "esac":
                raise _SyntaxError(token.start, token.operator)
            self._pattern = True

    def _take_word(self, word: Word) -> None:
        current = self._current
        if not current.words and not current.assignments:
            reserved = word.plain
            if reserved in _OPENS:
                self._begin(reserved)
                return
            if reserved in _CLOSES:
                self._close(reserved, word.start)
                return
            if reserved in _GOES_ON:
                self._connected = False
                return
            if reserved == "function":
                self._skip_to_word()
                self._function = True
                return
            if reserved == "[[":
                self._skip_until("]]", word.start)
                current.words.append(word)
                return
        assignment = split_assignment(word) if not current.words else None
        if assignment is not None:
            current.assignments.append(assignment)
        else:
            current.words.append(word)

    def _begin(self, word: str) -> None:
        self._push(_OPENS[word], certain=word == "{")
        if word in ("for", "select"):
            self._skip_until("do", None)
        elif word == "case":
            self._skip_until("in", None)
            self._pattern = True

    def _push(self, closer: str, *, certain: bool) -> None:
        self._open.append((closer, certain and not self._function and not self._connected))
        self._function = False
        self._connected = False

    def _close(self, word: str, mark: int) -> None:
        if not self._open or self._open[-1][0] != word:
            raise _SyntaxError(mark, word)
        self._open.pop()
        self._something = True

    def _separate(self, token: Token) -> None:
        empty = not self._current.words and not self._current.assignments and not self._something
        if empty and token.operator != "\n":
            raise _SyntaxError(token.start, token.operator)
        self._finish(token.operator)
        self._something = False
        if token.operator == "\n" and not self._open:
            self._line = len(self._commands)

    def _finish(self, operator: str) -> None:
        """The current command is complete; `operator` follows it."""
        current = self._current
        if current.words or current.assignments:
            inside = all(certain for _, certain in self._open) and not self._function
            current.certain = inside and not self._connected and operator not in ("|", "|&", "&")
            self._commands.append(current)
            self._current = Command()
        if operator in ("&&", "||", "|", "|&"):
            self._connected = True
        elif current.words or current.assignments or operator != "\n":
            # After && the command may stand on the next line.
            self._connected = False

    def _parenthesis(self, token: Token) -> None:
        if not self._current.words and not self._current.assignments:
            self._push(")", certain=False)
            return
        if len(self._current.words) == 1 and not self._current.assignments:
            following = self._lexer.next()
            if following is not None and following.operator == ")":
                self._current = Command()
                self._function = True
                return
        raise _SyntaxError(token.start, "(")

    def _redirect(self, token: Token) -> None:
        words = self._current.words
        if words and words[-1].end == token.start and (words[-1].plain or "").isdigit():
            words.pop()  # the number of a descriptor
        target = self._lexer.next()
        if target is None or target.word is None:
            raise _SyntaxError(token.start, token.operator)
        self._something = True
        if token.operator in ("<<", "<<-"):
            self._lexer.expect_heredoc(target.word.literal or "", token.operator == "<<-")

    def _skip_to_word(self) -> None:
        token = self._lexer.next()
        if token is None or token.word is None:
            raise _SyntaxError(token.start if token else 0, "function")

    def _skip_until(self, word: str, opened: int | None) -> None:
        while (token := self._lexer.next()) is not None:
            if token.word is not None and token.word.plain == word:
                return
        if opened is not None:
            raise _SyntaxError(opened, "[[")
