"""One watched server: its model and what feeds it; and the roster that the parts of the fleet share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from kvexporter.facts import FoundProcess
from kvexporter.poller import ServerPoller
from kvexporter.server import Server
from kvexporter.sources.llama_api import LlamaApi
from kvexporter.targets import Target

MAX_SERVERS = 200


@dataclass(slots=True)
class Announced:
    """What was said of one server."""

    incidents: int = 0
    """How many had been seen."""
    down: bool | None = None
    silent: bool = False
    """That its log says nothing was said."""
    exit_at: float = float("-inf")
    exit: str = ""

    def forget_before(self, model: Server) -> None:
        """What an earlier exporter counted is no news."""
        self.incidents = model.incidents_seen


@dataclass(slots=True)
class Watched:
    """One server and what feeds it."""

    target: Target
    model: Server
    poller: ServerPoller | None = None
    gone_since: float | None = None
    cpu_seen: tuple[float, float] | None = None
    """(time, CPU seconds used) at the last look."""
    cpu_busy: bool | None = None
    """The process used CPU time since the last look: the hint, without a log, that it works."""
    api: LlamaApi | None = None
    lives: int = 0
    seen: tuple[bool, str | None, tuple[str, int] | None] = (False, None, None)
    """What the poller was told last: busy, state, address in the log."""
    woken_at: float = 0.0
    """When a log entry last had the poller decide anew."""
    writer: FoundProcess | None = None
    """The process that writes the log, where discovery does not know it by its name."""
    writers_tried: int = 0
    """Its number, looked at once."""
    cgroup_seen: float = -math.inf
    """When its control group was read last."""
    start_recalled: int | None = None
    """The process for which the store was asked what is kept of its start."""
    announced: Announced = field(default_factory=Announced)


class Roster(Protocol):
    """All servers that are watched, and what their sources may bring about."""

    @property
    def watched(self) -> dict[str, Watched]: ...

    def add(self, target: Target) -> Watched:
        """Watch one more server."""

    def update(self, watched: Watched, target: Target, now: float) -> None:
        """Something about the server is known better now."""

    def drop(self, kind: str, text: str) -> None:
        """Count what is left out because there is too much of it; said the first time."""

    def addressed(self, watched: Watched) -> None:
        """The server's log may have told where it listens."""

    def look_soon(self) -> None:
        """There may be new processes."""
