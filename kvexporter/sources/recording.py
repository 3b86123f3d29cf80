"""Recorded polls of a server (`polls.jsonl`), as answers in the order they came."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kvexporter.facts import Endpoint

_ENDPOINTS: dict[str, Endpoint] = {
    "/slots": "slots",
    "/metrics": "metrics",
    "/props": "props",
    "/health": "health",
    "/models": "models",
    "/v1/models": "models",
}


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One answer as it was recorded."""

    at: float
    """When it was complete (unix seconds)."""
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
                poll = json.loads(line)
                at = float(poll.pop("t"))
                answers = [(name, answer) for name, answer in poll.items() if isinstance(answer, dict)]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise RecordingError(f"{path}:{number}: not a recorded poll: {error}") from None
            for name, answer in answers:
                at += float(answer.get("ms") or 0.0) / 1000
                if name in _ENDPOINTS:
                    yield RecordedAnswer(at, _ENDPOINTS[name], _status(answer), _body(answer.get("body")))


def read_endpoints(path: Path, at: float) -> Iterator[RecordedAnswer]:
    """Read the answers of every endpoint, taken at the recording's end."""
    try:
        answers = json.loads(path.read_bytes())
        for name, answer in answers.items():
            if name in _ENDPOINTS:
                yield RecordedAnswer(at, _ENDPOINTS[name], _status(answer), _body(answer.get("body")))
    except (ValueError, AttributeError) as error:
        raise RecordingError(f"{path}: not recorded endpoints: {error}") from None


def read_arguments(path: Path) -> tuple[str, ...]:
    """Read the server's command line from a recording's `requests.json`."""
    try:
        recorded = json.loads(path.read_bytes())
        return tuple(str(argument) for argument in cast("list[object]", recorded.get("args", [])))
    except (ValueError, AttributeError) as error:
        raise RecordingError(f"{path}: not a recording's requests: {error}") from None


def _status(answer: dict[str, object]) -> int | None:
    status = answer.get("status")
    return status if isinstance(status, int) else None


def _body(body: object) -> bytes:
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()
