"""What one lead-time run gave: what the server said, and what only the run itself knows of the overflow."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of the log, or an answer of /slots."""

    at: float
    body: bytes
    asked: float | None = None
    """When /slots was asked for; None: a line."""


@dataclass(slots=True)
class Recording:
    """What one run gave."""

    facts: list[Fact] = field(default_factory=list)
    began: float | None = None
    """When the build-up began: with the launch that was said to begin it, else with the one from which on the running
    requests needed more than the pool."""
    failed_at: float | None = None
    """When the first request failed."""
    ended: float = 0.0
    peak: float = 0.0
    """Highest fill of running requests."""
    beyond_window_at: float | None = None
    """When the first prompt was launched that no client sends which keeps within the window that a slot is sure of."""
