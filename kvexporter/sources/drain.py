"""What readers of logs (a journal, a file, standard input) are asked for, and what one drain of them tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kvexporter.facts import JournalEntry

Handler = Callable[[JournalEntry], object]
Seek = Literal["invocation", "head"]
"""Where to start without a position: at the start of the unit's current invocation, or at the oldest entry."""

WAITING = "waiting before the next attempt"
"""A failure that goes on: why was said before."""


@dataclass(slots=True)
class DrainResult:
    """What one drain read."""

    read: int = 0
    """Entries read, of any kind."""
    wanted: int = 0
    """Entries of the server handed on because their message was wanted."""
    unit_events: int = 0
    """Entries of systemd or journald about the unit, handed on."""
    malformed: int = 0
    """Entries without a readable message."""
    continued: int = 0
    """Entries handed on that are later pieces of a split line."""
    newest: float | None = None
    """When the last entry read was received, unix seconds; None when nothing was read."""
    more: bool = False
    """The budget ended before the entries did: call again soon."""
    complete: bool = False
    """Nothing was left to read."""
    reopened: bool = False
    """The journal was opened anew, so `fileno()` is another descriptor."""
    gap: bool = False
    """Entries may have been lost: passed over because they are damaged, or vacuumed before they were read."""
    failure: str | None = None
    """Why reading cannot go on now; later drains try again, at growing intervals."""
