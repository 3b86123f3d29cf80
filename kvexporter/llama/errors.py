"""Bodies that are not what their endpoint answers, and the error objects of llama-server."""

from __future__ import annotations

import re

import msgspec

from kvexporter.llama.json_fields import UNREADABLE, number, text

_SAFE_TYPE = re.compile(r"[a-z][a-z0-9_]{0,63}")


class MalformedBody(Exception):  # noqa: N818 - named for what it is, as the counted reason
    """A body is not what its endpoint answers.

    `reason` says in a few words what it is instead. It never quotes the body, which may hold prompt text.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Error(msgspec.Struct):
    type: msgspec.Raw = msgspec.Raw()
    code: msgspec.Raw = msgspec.Raw()


class _ErrorBody(msgspec.Struct):
    error: _Error


_decoder = msgspec.json.Decoder(_ErrorBody)


def parse_error(body: bytes) -> str | None:
    """The type of an error answer (`not_supported_error`), else its code as text; None if the body is not an error.

    The message is never returned: some messages quote the request.
    """
    try:
        error = _decoder.decode(body).error
    except UNREADABLE:
        return None
    kind = text(error.type, limit=64)
    if kind is not None and _SAFE_TYPE.fullmatch(kind):
        return kind
    code = number(error.code)
    return None if code is None else str(code)


def unexpected(body: bytes, expected: str) -> MalformedBody:
    """The exception for a body that is not `expected`, with the likeliest thing that it is instead."""
    start = body.lstrip()[:1]
    if not start:
        found = "an empty body"
    elif start == b"<":
        found = "HTML"
    elif (error := parse_error(body)) is not None:
        found = f"an error ({error})"
    elif start in b"{[":
        found = "other or truncated JSON"
    else:
        found = "something else"
    return MalformedBody(f"{found} instead of {expected}")
