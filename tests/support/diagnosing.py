"""Logs diagnosed in tests: by the books alone, and by the command."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kvexporter.diagnosing.logbook import LogBook, ServerStory
from kvexporter.diagnosing.sieve import Sieve
from kvexporter.llama.events import LogLine
from kvexporter.llama.log import parse_line
from tests.support.paths import RECORDINGS

EXPECTED: dict[str, dict[str, Any]] = json.loads((RECORDINGS / "expected.json").read_text())
"""What each recording's own lines and clients say."""

STEP = 0.01
"""Seconds from line to line."""


def recorded(name: str) -> list[bytes]:
    """A recorded log's lines."""
    return (RECORDINGS / name / "server.log").read_bytes().splitlines()


def story_of(lines: Iterable[bytes], *, name: str = "test", last: int = 100) -> ServerStory:
    """What a log's lines come to, each taken in."""
    book, at = LogBook(name, last=last), 1000.0
    for line in lines:
        at += STEP
        parsed = parse_line(line)
        if parsed is not None:
            book.line(parsed, at)
    book.conclude()
    return book.story()


def sifted(lines: Iterable[bytes], *, name: str = "test", last: int = 100, anew: Iterable[int] = ()) -> ServerStory:
    """The same through a sieve; before the lines with these numbers a new one is taken, as for a part of a journal."""
    book, at, sieve, cuts = LogBook(name, last=last), 1000.0, Sieve(), set(anew)
    book.sifted()
    for number, line in enumerate(lines):
        at += STEP
        if number in cuts:
            sieve = Sieve()
        reading = sieve(line)
        if type(reading) is LogLine:
            book.line(reading, at)
    book.conclude()
    return book.story()


def without_times(story: ServerStory) -> ServerStory:
    """The story without what a sieve may change: when the needed lines were, who asked, and what was needed when."""
    incidents = tuple(replace(incident, demand_above_seconds=None) for incident in story.incidents)
    counters = replace(story.counters, http_requests={})
    return replace(story, first=None, last=None, clients={}, incidents=incidents, counters=counters)
