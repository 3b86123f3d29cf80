"""What has been read of one cascade of failing batches: who ran and was released, and which batch found no room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvexporter.llama.slots import MOST_SLOTS

Running = Mapping[int, tuple[int | None, int | None]]
"""Slot → (task, tokens) of the slots that run a task."""

NO_OFFSET = -1
"""The line named none."""


@dataclass(slots=True)
class Cascade:
    """What has been read of one cascade so far."""

    started: float
    running: dict[int, tuple[int | None, int | None]]
    last: float
    confirmed: bool = False
    exceeded: bool = False
    """The error itself was read: a second one is another incident's."""
    cleared: bool = False
    """The build drops the failed slots' caches with the error."""
    releases: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    errors: set[int] = field(default_factory=set)
    unknown_errors: int = 0
    stepped: bool = False
    """A part of the batch was computed since the last failure: the next failure's offset tells whether it went on."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Offset → the largest batch that failed there."""
    pending: int | None = None
    """The largest batch that failed since the last line with an offset."""
    offset: int = NO_OFFSET
    prompts: dict[int, int] = field(default_factory=dict)
    """Task → size of its whole prompt, of those running at the start, where it was logged."""
    demand_above_since: float | None = None
    """Since when the requests running at the start were known by the log to need more than the pool."""
    size: int | None = None
    """The batch that failed last."""
    batch: int | None = None
    """The size that was to be tried next."""

    def unplaced(self, size: int | None) -> None:
        if size is not None:
            self.pending = max(self.pending or 0, size)
            self.size = size

    def at_offset(self, offset: int | None) -> None:
        """The sizes read since the last such line failed at `offset`."""
        self.offset = offset = NO_OFFSET if offset is None else offset
        if self.pending is not None:
            if len(self.sizes) >= MOST_SLOTS:
                self.sizes.clear()
            self.sizes[offset] = max(self.sizes.get(offset, 0), self.pending)
            self.pending = None

    def expects(self, size: int | None) -> bool:
        """A failing batch of this size is the one that was to be tried next, so nothing was computed in between."""
        if size is None or self.size is None or self.batch is None:
            return True
        return size == min(self.size, self.batch)

    def falls_back_to(self, offset: int | None, batch: int) -> bool:
        """A larger batch is tried at the same place: the batch before has found room, and this is a later one."""
        return offset is not None and offset <= self.offset and self.batch is not None and batch > self.batch

    def goes_on_at(self, offset: int | None) -> bool:
        """A failure at `offset` is of the same batch: parts of it were placed since the last one."""
        return offset is not None and offset > self.offset != NO_OFFSET

    def take(self, later: Cascade) -> None:
        """The failures of `later` are of this cascade's batch."""
        if later.pending is not None:
            self.unplaced(later.pending)
        self.batch = None
        self.last = max(self.last, later.last)
        self.releases.clear()
        self.stepped = False

    @property
    def unplaced_batch(self) -> int | None:
        """The batch that found no room: the largest that failed at the place where the cascade ended."""
        if self.pending is not None:
            return max(self.sizes.get(self.offset, 0), self.pending)
        return self.sizes.get(self.offset)
