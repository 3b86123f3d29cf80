"""One journal and the servers that write into it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

from kvexporter.follower import JournalFollower
from kvexporter.intake import MAX_CHILDREN, LogIntake
from kvexporter.llama.events import ChildStarting
from kvexporter.reading_links import Place, place_of
from kvexporter.server_memory import ServerMemory
from kvexporter.sources.log_selection import Selection, selection_from_stored, stored_fields


@dataclass(slots=True)
class Feed:
    """One journal and the servers that write into it."""

    selection: Selection
    follower: JournalFollower
    intake: LogIntake
    members: list[str] = field(default_factory=list)
    memories: dict[str, ServerMemory] = field(default_factory=dict)
    """What is known of servers that are not watched now but write into it: a router's children."""
    incidents: int = 0
    """How many had been seen when the feed was last written."""
    kept: float = -math.inf
    """When it was last tried to be written (monotonic)."""
    key: str = field(init=False)
    """Under which it is stored."""
    place: Place = field(init=False)
    """Where it lies: what lies there hangs together."""

    def __post_init__(self) -> None:
        self.key = feed_key(self.selection)
        self.place = place_of(self.selection)

    def remember(self, name: str, memory: ServerMemory) -> None:
        """Keep what is known of a server that is not watched any more; the oldest go when there are too many."""
        self.memories[name] = memory
        if len(self.memories) > MAX_CHILDREN:
            del self.memories[next(iter(self.memories))]


class ChildNames:
    """Which of a router's models answers on which port, as its log tells when it starts them."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def starting(self, event: ChildStarting) -> None:
        """A model's process is started; bounded, because names and ports are what the log says."""
        self._names.pop(event.port, None)
        self._names[event.port] = event.name
        if len(self._names) > MAX_CHILDREN:
            del self._names[next(iter(self._names))]

    def get(self, port: int) -> str | None:
        """The model's name; None of a port of which nothing was said."""
        return self._names.get(port)


def feed_key(selection: Selection) -> str:
    """Under which a journal or another log is stored: what of it is read."""
    return json.dumps(stored_fields(selection), sort_keys=True)


def selection_of(key: str) -> Selection | None:
    """The journal or log that is stored under a key; None of one that cannot be read."""
    try:
        return selection_from_stored(dict(json.loads(key)))
    except (ValueError, TypeError):
        return None
