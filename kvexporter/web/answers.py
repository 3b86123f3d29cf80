"""Answers' bodies: zipped for who takes it, JSON and its errors."""

from __future__ import annotations

import gzip

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from kvexporter.metrics.negotiation import accepts_gzip

GZIP_FROM_BYTES = 1024
GZIP_LEVEL = 4
"""Metrics shrink to an eighth at this level already; higher ones take twice the time for a few bytes."""
JSON = "application/json"


def zipped(
    request: Request, body: bytes, content_type: str, status: int = 200, vary: str = "Accept-Encoding"
) -> Response:
    """Give an answer, zipped if its client takes that and it is worth it."""
    headers = {"content-type": content_type, "vary": vary}
    if len(body) >= GZIP_FROM_BYTES and accepts_gzip(request.headers.get("accept-encoding")):
        body = gzip.compress(body, GZIP_LEVEL, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, status, headers=headers)


def json_answer(request: Request, value: object) -> Response:
    """Give a value as JSON; numbers that JSON cannot carry become null."""
    return zipped(request, msgspec.json.encode(value), JSON)


def json_error(status: int, text: str) -> Response:
    """Say what is wrong. The text never repeats what was asked for."""
    return Response(msgspec.json.encode({"error": text}), status, media_type=JSON)
