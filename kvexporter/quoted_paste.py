"""Logs as they stand in mails, forums and issues: each line behind `> `, or more of them in a quoted quote. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvexporter.llama.log import parse_line

_SPACE = rb"(?:[ \t]|\xc2\xa0){0,64}+"
_QUOTE = re.compile(rb"%b(?:(?:>|&gt;)%b){1,64}+" % (_SPACE, _SPACE))


def without_quote(line: bytes) -> bytes:
    """The line without the marks of a quote at its beginning."""
    found = _QUOTE.match(line)
    return line if found is None else line[found.end() :]


def is_quoted(lines: Iterable[bytes]) -> bool:
    """Whether more of these lines say something as quoted ones than as they stand.

    Not decided line by line: a server's log can hold text of its clients, and they could quote whatever they like.
    """
    quoted = plain = 0
    for line in lines:
        bare = without_quote(line)
        if bare is not line:
            quoted += _says_something(bare)
        else:
            plain += _says_something(line)
    return quoted > plain


def _says_something(line: bytes) -> bool:
    read = parse_line(line)
    return read is not None and read.event is not None
