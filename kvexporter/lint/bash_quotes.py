r"""Bash's nested quotes and brackets, and its `$'…'` with escapes."""

from __future__ import annotations

import re

from kvexporter.lint.places import Traced

_INNER = {"(": ")", "{": "}"}
_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_NUMBERED = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.))", re.S)


def closing(text: str, at: int, closer: str) -> int:
    """Where the text goes on behind the `closer` that closes what was opened before `at`; -1 if nothing closes it."""
    waiting = [closer]
    while at < len(text):
        character = text[at]
        inner = waiting[-1]
        if character == "\\":
            at += 2
            continue
        if character == inner:
            waiting.pop()
            if not waiting:
                return at + 1
        elif character == "'" and inner not in '"`':
            at = text.find("'", at + 1)
            if at < 0:
                return -1
        elif character in '"`':
            waiting.append(character)
        elif text.startswith(("$(", "${"), at):
            waiting.append(_INNER[text[at + 1]])
            at += 1
        elif character == "(" and inner == ")":
            waiting.append(")")
        at += 1
    return -1


def ansi_c(whole: Traced, at: int) -> tuple[Traced, int]:
    """The value of `$'…'` whose text starts at `at`, and where the text goes on; -1 if it is not closed."""
    text = whole.text
    characters: list[str] = []
    marks: list[int] = []

    def give(value: str) -> None:
        characters.append(value)
        marks.extend([whole.marks[at]] * len(value))

    while at < len(text):
        if text[at] == "'":
            return Traced("".join(characters), marks), at + 1
        if text[at] != "\\" or at + 1 >= len(text):
            give(text[at])
            at += 1
            continue
        numbered = _NUMBERED.match(text, at)
        if numbered is not None:
            give(_numbered(numbered))
            at = numbered.end()
        else:
            simple = _ESCAPES.get(text[at + 1])
            give(simple if simple is not None else text[at : at + 2])
            at += 2
    return Traced("", ()), -1


def _numbered(match: re.Match[str]) -> str:
    if match[5] is not None:
        return chr(ord(match[5]) & 0x1F)
    octal = match[4]
    number = int(octal, 8) & 0xFF if octal is not None else int(match[1] or match[2] or match[3], 16)
    if match[1] is not None or octal is not None:
        # A byte of its own, as files are read: what is not UTF-8 keeps its byte.
        return bytes([number]).decode("utf-8", "surrogateescape")
    return chr(number) if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else "\N{REPLACEMENT CHARACTER}"
