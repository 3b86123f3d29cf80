"""How a KV cache is cut: a plain value that the language makes, the model keeps and the views show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GeometrySource = Literal["config", "journal", "cmdline", "api"]


@dataclass(frozen=True, slots=True)
class Geometry:
    """How the KV cache is cut. Each field may be unknown by itself."""

    slots: int | None = None
    slot_context: int | None = None
    """Most tokens one slot may hold."""
    capacity: int | None = None
    """Cells of the whole KV buffer (all slots' buffers together when split)."""
    shared: bool | None = None
    """More than one slot draws from one buffer."""
    source: GeometrySource | None = None
    """Where the capacity comes from (where the rest does, while the capacity is unknown)."""

    @property
    def promised(self) -> int | None:
        """Tokens promised to all slots together: slots times slot context."""
        if self.slots is None or self.slot_context is None:
            return None
        return self.slots * self.slot_context

    @property
    def overcommit_ratio(self) -> float | None:
        """Promised tokens by capacity; at 1 or less the pool cannot overflow."""
        if self.promised is None or not self.capacity:
            return None
        return self.promised / self.capacity

    @property
    def guaranteed(self) -> int | None:
        """Tokens a slot is sure of, whatever the others do."""
        if self.slot_context is None or self.shared is None:
            return None
        if not self.shared:
            return self.slot_context
        if self.capacity is None or not self.slots:
            return None
        return min(self.slot_context, self.capacity // self.slots)
