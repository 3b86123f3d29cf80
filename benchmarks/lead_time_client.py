"""What clients ask of a server in the lead-time runs: generators that wait, or ask and get the outcome back."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

COMPACTED = 0.95
"""Clients that were told a window compact before their prompt is larger than this part of it: its answer needs room."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a client, in tokens."""

    prompt: int
    answer: int
    """As long as it will be."""
    limit: int | None = None
    """As the client asked for; None: no limit."""
    cached: int = 0
    """The beginning of the prompt that the client's last request and its answer had as well."""
    begins: bool = False
    """The build-up to an overflow begins with its launch, whatever runs beside it."""


Client = Generator[float | Ask, bool, None]
"""It gives seconds to wait, or an Ask, whose outcome it gets back."""
