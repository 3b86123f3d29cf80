"""Since when a server has been in a state that is a fault only if it lasts: not up, loading, requests waiting.

Facts and their times go in; no clock, no I/O.
"""

from __future__ import annotations

from kvexporter.snapshot import ServerState


class Spells:
    """One server's. Times are unix seconds; None: it is not in that state, or that is not known."""

    def __init__(self) -> None:
        self.down_since: float | None = None
        self.loading_since: float | None = None
        self.deferred_since: float | None = None

    def available(self, up: bool | None, state: ServerState | None, at: float) -> None:
        """Take whether it answers, and what it does, at `at`."""
        if up is not False:
            self.down_since = None
        elif self.down_since is None:
            self.down_since = at
        if state != "loading":
            self.loading_since = None
        elif self.loading_since is None:
            self.loading_since = at

    def deferred(self, requests: float | None, at: float) -> None:
        """Take how many requests wait for a slot at `at`; None where that is not known."""
        if not requests:
            self.deferred_since = None
        elif self.deferred_since is None:
            self.deferred_since = at
