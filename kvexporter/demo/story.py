"""A recorded incident in the form that the package carries: log lines and answers with their times."""

from __future__ import annotations

import gzip
import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

STORY = files("kvexporter.demo") / "data" / "four-agents.json.gz"

_LISTENING = re.compile(r"(listening on http://127\.0\.0\.1:)\d+")
_UNREAD = {"speculative"}


@dataclass(frozen=True)
class Answer:
    """What the server answered from `at` seconds after its first line until the next answer's time."""

    at: float
    slots: list[dict[str, Any]]
    metrics: str


@dataclass(frozen=True)
class Story:
    """One recording. Times are seconds since the server's first line."""

    build: str
    args: tuple[str, ...]
    lines: tuple[tuple[float, str], ...]
    answers: tuple[Answer, ...]

    @property
    def duration(self) -> float:
        return self.lines[-1][0]

    @cached_property
    def ready_at(self) -> float:
        """When it began to answer; before, it was loading its model."""
        return next(at for at, text in self.lines if "model loaded" in text)

    @cached_property
    def slots(self) -> int:
        return len(self.answers[0].slots)

    @cached_property
    def slot_context(self) -> int:
        """Tokens that each slot was told it may use."""
        return int(self.answers[0].slots[0]["n_ctx"])

    def answer_at(self, at: float) -> Answer:
        """What the server answered at that time."""
        return self.answers[max(0, bisect_right([answer.at for answer in self.answers], at) - 1)]

    def props(self) -> dict[str, Any]:
        """`/props` as this build words it, without templates."""
        return {
            "default_generation_settings": {"n_ctx": self.slot_context},
            "total_slots": self.slots,
            "model_alias": "four-agents",
            "model_path": "four-agents.gguf",
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": True,
            "build_info": self.build,
            "is_sleeping": False,
        }


def line_for_port(text: str, port: int) -> str:
    """The recorded line, with the port that the stand-in really listens on."""
    return _LISTENING.sub(rf"\g<1>{port}", text)


def load_story(source: Path | None = None) -> Story:
    """Read a story; without a source, the one that the package carries."""
    packed = STORY.read_bytes() if source is None else source.read_bytes()
    raw = json.loads(gzip.decompress(packed))
    return Story(
        build=raw["build"],
        args=tuple(raw["args"]),
        lines=tuple((at, text) for at, text in raw["lines"]),
        answers=tuple(Answer(at, slots, metrics) for at, slots, metrics in raw["answers"]),
    )


def pack_recording(recording: Path, build: str) -> bytes:
    """Make a story of a recording's folder: journal.export for the log, polls.jsonl for the answers.

    Answers that repeat the one before are left out, and so is what no exporter reads.
    """
    entries = (recording / "journal.export").read_text().split("\n\n")
    stamped = [
        (int(fields["__REALTIME_TIMESTAMP"]) / 1e6, fields["MESSAGE"])
        for fields in (dict(line.split("=", 1) for line in entry.splitlines()) for entry in entries if entry.strip())
    ]
    start = stamped[0][0]
    answers: list[tuple[float, list[dict[str, Any]], str]] = []
    metrics = ""
    for line in (recording / "polls.jsonl").read_text().splitlines():
        poll = json.loads(line)
        metrics = _body(poll, "/metrics") or metrics  # was asked less often
        slots = [
            {key: value for key, value in slot.items() if key not in _UNREAD} for slot in _body(poll, "/slots") or []
        ]
        if slots and (not answers or slots != answers[-1][1]):
            answers.append((round(poll["t"] - start, 3), slots, metrics))
    story = {
        "build": build,
        "args": json.loads((recording / "requests.json").read_text())["args"],
        "lines": [(round(at - start, 6), text) for at, text in stamped],
        "answers": answers,
    }
    # Without a time stamp, so that the same recording always gives the same bytes.
    return gzip.compress(json.dumps(story, separators=(",", ":")).encode(), 9, mtime=0)


def _body(poll: dict[str, Any], path: str) -> Any:
    answer = poll.get(path, {})
    return answer.get("body") if answer.get("status") == 200 else None
