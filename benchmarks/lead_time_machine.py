"""A simulated server's sizes and speeds, and its slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.lead_time_client import Ask, Client

BATCH = 2048
"""Tokens of one batch (--batch-size)."""

Dialect = Literal["b11434", "b8635"]


@dataclass(frozen=True, slots=True)
class Machine:
    """Sizes and speeds of a server."""

    capacity: int
    slots: int
    reading: float
    """Tokens of prompts a second, with an empty cache."""
    answering: float
    """Tokens a second of one answer."""
    dialect: Dialect = "b11434"


@dataclass(slots=True)
class Slot:
    """One slot, with its cache and its request."""

    id: int
    client: Client | None = None
    """Whose conversation the cache holds."""
    ask: Ask | None = None
    task: int = -1
    held: int = 0
    """As long as its prompt waits to be read, all of the cache that it was launched with."""
    reused: int = 0
    processed: int = 0
    """Of the prompt, in batches that are done, as /slots tells it."""
    decoded: int = 0
    reading_since: float | None = None
    answer_told: float = 0.0
    used_at: float = -1.0
    """When its last request ended."""

    @property
    def unread(self) -> int:
        if self.ask is None or self.decoded:
            return 0
        return self.ask.prompt - (self.reused if self.reading_since is None else self.held)

    def common(self, client: Client, ask: Ask) -> int:
        """Tokens at the beginning that the cache and a request's prompt have in common."""
        return min(ask.cached, self.held, ask.prompt) if self.client is client else 0
