"""Who plays in the demonstration: for each story its unit, what it waits for, and how long that may take."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvexporter.demo import crashing
from kvexporter.demo.tales import ASLEEP_SECONDS, load_tale
from kvexporter.demo.units import Unit
from kvexporter.demo.watches import AgentsWatch, CrashingWatch, SleepingWatch, Watch
from kvexporter.rules.thresholds import CRASH_RESTARTS

STORIES = ("agents", "safe", "sleeping", "crashing")
"""All of them, the one that is commented on most first."""

SLACK_SECONDS = 30.0
"""The exporter has so long to show what the log said; machines can be slow."""

_START_SECONDS = 10.0
"""A stand-in's own start takes so long at most."""


@dataclass
class Player:
    """One server of the demonstration."""

    story: str
    says: str
    unit: Unit
    port: int
    watch: Watch
    first: float
    """Seconds from its start until what it waits for is to be seen, at the latest."""
    again: float | None = None
    """Seconds until it is to be seen once more, and so on; None: once is enough."""


def player(story: str, port: int, speed: float, linger: float, folder: Path, log_has_exits: bool) -> Player:
    """Make the server of a story; `speed` and `linger` as the options of the demonstration have them."""
    if story == "crashing":
        return _crashing(port, min(speed, crashing.FASTEST), folder, log_has_exits)
    tale = load_tale(story)
    speed = min(speed, tale.fastest)
    command = [sys.executable, "-m", "kvexporter.demo.tale_server", "--tale", story, "--port", str(port)]
    command += ["--speed", str(speed), "--linger", str(linger)]
    unit = Unit(story, tale.says, lambda _: command)
    extra = _START_SECONDS + SLACK_SECONDS
    if story == "agents":
        once = tale.round.duration / speed
        first = tale.opening.duration / speed + once + extra
        return Player(story, tale.says, unit, port, AgentsWatch(story), first, once + linger + SLACK_SECONDS)
    kinds: dict[str, tuple[Callable[[str], Watch], float]] = {
        "safe": (Watch, tale.round.duration),
        "sleeping": (SleepingWatch, ASLEEP_SECONDS + tale.opening.duration),
    }
    watch, seconds = kinds[story]
    return Player(story, tale.says, unit, port, watch(story), seconds / speed + extra)


def _crashing(port: int, speed: float, folder: Path, log_has_exits: bool) -> Player:
    pause = crashing.RESTART_SECONDS / speed

    def command(start: int) -> list[str]:
        own = ["--start", str(start), "--environment", str(folder / "llama-crashing.env")]
        return [sys.executable, "-m", "kvexporter.demo.crashing", *own]

    unit = Unit("crashing", crashing.SAYS, command, restart_seconds=pause)
    watch = CrashingWatch("crashing", log_has_exits)
    first = (CRASH_RESTARTS + 1) * (pause + _START_SECONDS) + SLACK_SECONDS
    return Player("crashing", crashing.SAYS, unit, port, watch, first)
