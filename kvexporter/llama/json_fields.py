"""Single JSON fields read tolerantly: builds and forks differ in types, and one odd field must not cost a whole body.

The fields arrive as raw JSON, so nothing of a wrong type is ever built.
"""

from __future__ import annotations

import re

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding a hostile body can raise; RecursionError from thousands of nested brackets."""

MOST = 2**40
"""Numbers above are nonsense: no cache has as many tokens, no server as many tasks."""

_NUMBER = re.compile(rb'"?\s*(-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?)\s*"?')
_TRUE = (b"true", b'"true"')
_FALSE = (b"false", b'"false"')


def number(raw: msgspec.Raw) -> int | None:
    """A whole number from 0 to 2**40, also if written as a string or as 4096.0; None for anything else."""
    match = _NUMBER.fullmatch(bytes(raw)) if len(raw) <= 64 else None
    if match is None:
        return None
    value = float(match[1])
    return int(value) if 0 <= value <= MOST and value.is_integer() else None


def flag(raw: msgspec.Raw) -> bool | None:
    """A boolean, also if written as a string or as a number (0 is false); None for anything else."""
    if len(raw) > 64:
        return None
    word = bytes(raw)
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    value = number(raw)
    return None if value is None else value != 0


def text(raw: msgspec.Raw, *, limit: int) -> str | None:
    """A string that is not empty, without control characters; None for anything else, or if longer than `limit`."""
    # An escape takes at most six bytes per UTF-16 unit, and a character two units: longer ones need not be decoded.
    if len(raw) > 12 * limit + 2:
        return None
    try:
        value = msgspec.json.decode(raw, type=str)
    except UNREADABLE:
        return None
    clean = "".join(character for character in value if character.isprintable()).strip()
    return clean if 0 < len(clean) <= limit else None
