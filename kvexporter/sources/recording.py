"""Recorded polls of a server (`polls.jsonl`), as answers in the order they came."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kvexporter.facts import Endpoint

_ENDPOINTS: dict[str, Endpoint] = {
    "/slots": "slots",
    "/metrics": "metrics",
    "/props": "props",
    "/health": "health",
    "/models": "models",
    "/v1/models": "models",
}


_LATEST = 1e11
"""Unix seconds; the year 5138."""


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One answer as it was recorded."""

    at: float
    """When it was complete (unix seconds)."""
    asked: float
    """When it was asked for."""
    endpoint: Endpoint
    status: int | None
    """None: there was no answer."""
    body: bytes


class RecordingError(Exception):
    """A recording cannot be read; the text says which file and why."""


def read_polls(path: Path) -> Iterator[RecordedAnswer]:
    """Read one JSON object per line: `t` and, for each endpoint asked, its status, duration (`ms`) and body."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                answers = _answers(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise RecordingError(f"{path}:{number}: not a recorded poll: {error}") from None
            yield from answers


def _answers(poll: dict[str, Any]) -> list[RecordedAnswer]:
    at = float(poll.pop("t"))
    found = []
    for name, answer in poll.items():
        if isinstance(answer, dict):
            asked, at = at, at + float(answer.get("ms") or 0.0) / 1000
            if not 0 <= at <= _LATEST:
                raise ValueError(f"expected a time in unix seconds, found {at:g}")
            if name in _ENDPOINTS:
                found.append(RecordedAnswer(at, asked, _ENDPOINTS[name], _status(answer), _body(answer.get("body"))))
    return found


def read_arguments(path: Path) -> tuple[str, ...]:
    """Read the server's command line from a recording's `requests.json`."""
    try:
        recorded = json.loads(path.read_bytes())
        return tuple(str(argument) for argument in cast("list[object]", recorded.get("args", [])))
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise RecordingError(f"{path}: not a recording's requests: {error}") from None


def _status(answer: dict[str, object]) -> int | None:
    status = answer.get("status")
    return status if isinstance(status, int) else None


def _body(body: object) -> bytes:
    return body.encode("utf-8", "replace") if isinstance(body, str) else json.dumps(body).encode()
