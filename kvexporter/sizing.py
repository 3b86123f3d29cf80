"""Which sound ways there are to cut a KV cache for measured requests, and what each costs. Pure arithmetic.

Used by `plan` (all of them) and by `diagnose` and the page (those that mend what was found).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Option = Literal["as_is", "split", "capped", "grown_q8", "grown_f16", "grown_q4", "queue"]
"""capped: each slot's part guaranteed by --kv-unified-per-slot; grown: every slot the whole window, at 8, 16 or 4 bit;
queue: one slot, the others wait."""


@dataclass(frozen=True, slots=True)
class SizingFacts:
    """What is known of a server. None: unknown, and what needs it is unknown too."""

    slots: int
    slot_context: int | None = None
    """Window of a slot today, in tokens."""
    capacity: int | None = None
    """Cells of the whole buffer today."""
    shared: bool | None = None
    context_train: int | None = None
    """The model's training context: no window is above it."""
    kv_bytes_per_token: float | None = None
    """Today's, with today's cache types."""
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    """As -ctk and -ctv name them; None: unknown (not: f16)."""
    memory_bytes: int | None = None
    """Memory that the KV cache may take in all: what it takes today and what is free beside it."""


@dataclass(frozen=True, slots=True)
class RequestSizeFacts:
    """Measured sizes of whole requests (prompt and answer), in tokens."""

    sizes: tuple[int, ...] = ()
    """All of them, ascending; empty when only the percentile was given."""
    p50: int | None = None
    p95: int | None = None
    largest: int | None = None

    def fitting(self, window: int) -> float | None:
        """Share (0 to 1) of the measured requests that fit into `window` tokens; None without measured ones."""
        if not self.sizes:
            return None
        return sum(size <= window for size in self.sizes) / len(self.sizes)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to start the server."""

    option: Option
    title: str
    flags: tuple[str, ...]
    """Ready to paste, e.g. ("-c", "1048576", "-np", "4", "-kvu", …)."""
    slots: int
    window: int
    """Tokens one slot may hold."""
    guaranteed: int
    """Tokens a slot is sure of; the window unless overcommitted."""
    pool: int
    """Cells of the whole buffer, rounded as the server rounds."""
    overcommitted: bool
    kv_bytes: int | None
    memory_left: int | None
    """Negative: it does not fit."""
    fits: float | None
    """Share of the measured requests that fit into the guaranteed window."""
    why: str
    """One plain sentence: what it gives and what it costs."""
