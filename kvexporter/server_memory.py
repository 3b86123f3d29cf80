"""What one server's model must not forget when the exporter is started anew.

The store keeps it as JSON under the names of the fields: an older exporter's must still be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvexporter.geometry import StartupLog
from kvexporter.histogram import Histogram
from kvexporter.ledger import Ledger
from kvexporter.pool import Pool
from kvexporter.server_parts import ServerParts
from kvexporter.snapshot import ServerState
from kvexporter.unit_life import UnitLife


@dataclass(slots=True)
class ServerMemory:
    """What one server's model must not forget when the exporter is started anew: all that came from the log."""

    ledger: Ledger
    startup: StartupLog
    pool: Pool
    fill_seconds: Histogram
    state: ServerState | None
    model: str | None
    build: str | None
    verbosity: int | None
    info_seen: bool
    listening: tuple[str, int] | None
    has_log: bool = True
    unit_life: UnitLife = field(default_factory=UnitLife)


def memory_of(parts: ServerParts) -> ServerMemory:
    """All that the log has told so far, and the time spent at each fill: the parts themselves, not copies."""
    return ServerMemory(
        ledger=parts.ledger,
        startup=parts.shape.startup,
        pool=parts.pool,
        fill_seconds=parts.occupancy.seconds,
        state=parts.availability.state,
        model=parts.model,
        build=parts.build,
        verbosity=parts.verbosity,
        info_seen=parts.info_seen,
        listening=parts.listening,
        has_log=parts.has_log,
        unit_life=parts.unit_life,
    )


def remember(parts: ServerParts, memory: ServerMemory) -> None:
    """Go on where an earlier exporter stopped. What the memory holds becomes part of `parts`."""
    parts.has_log, parts.has_unit = memory.has_log, True
    parts.ledger = memory.ledger
    parts.shape.startup = memory.startup
    parts.pool = memory.pool
    parts.pool.lose_polled()
    parts.occupancy.seconds = memory.fill_seconds
    parts.availability.state = memory.state
    parts.model, parts.build = memory.model, memory.build
    parts.verbosity, parts.info_seen = memory.verbosity, memory.info_seen
    parts.listening = memory.listening
    parts.unit_life = memory.unit_life
    parts.reshape()
