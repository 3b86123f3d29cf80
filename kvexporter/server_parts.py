"""The parts that make up the model of one server, and the changes that touch several of them.

What takes facts in (`server_log.py`, `server_answers.py`, `server_process.py`, `server_time.py`) and what shows what is
known (`server_snapshot.py`, `server_memory.py`) see all of them; everybody else sees `Server`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kvexporter.facts import CgroupSample, ProcessSample
from kvexporter.forecast import Forecast
from kvexporter.geometry import PoolShape
from kvexporter.ledger import Ledger
from kvexporter.llama.exposition import UpstreamMetrics
from kvexporter.llama.model_shape import ModelShape
from kvexporter.llama.props import Props
from kvexporter.memory_at_ready import MemoryAtReady
from kvexporter.occupancy import OccupancyTime
from kvexporter.polls import PollHistory
from kvexporter.pool import Pool
from kvexporter.pool_geometry import Geometry
from kvexporter.spells import Spells
from kvexporter.state import Availability
from kvexporter.unit_life import UnitLife

_INFO_LEVEL = 3


@dataclass(slots=True)
class ServerParts:
    """One server. Times are unix seconds; None: not known."""

    shape: PoolShape
    polls: PollHistory
    ledger: Ledger = field(default_factory=Ledger)
    pool: Pool = field(default_factory=Pool)
    occupancy: OccupancyTime = field(default_factory=OccupancyTime)
    forecast: Forecast = field(default_factory=Forecast)
    availability: Availability = field(default_factory=Availability)
    spells: Spells = field(default_factory=Spells)
    unit_life: UnitLife = field(default_factory=UnitLife)
    memory_at_ready: MemoryAtReady = field(default_factory=MemoryAtReady)
    geometry: Geometry = field(default_factory=Geometry)
    """What `shape` tells."""

    # ---- what the log told of itself and of the process that runs now ------------------------------------------
    has_log: bool = False
    """A line of it was read."""
    has_unit: bool = False
    """systemd's words about the unit are read."""
    verbosity: int | None = None
    info_seen: bool = False
    """A line was read that only verbosity 3 or more brings."""
    listening: tuple[str, int] | None = None
    """(host, port)."""
    logged_model: str | None = None
    """The model's file."""
    lives: int = 0
    """How often the log showed a new process …"""
    life_at: float | None = None
    """… and when it did last."""
    starting: bool = False
    """The first line of a process was read, and nothing of its model yet."""

    # ---- what any source told ----------------------------------------------------------------------------------
    model: str | None = None
    build: str | None = None
    props: Props | None = None
    upstream: UpstreamMetrics | None = None
    process: ProcessSample | None = None
    cgroup: CgroupSample | None = None
    gpu_memory: dict[str, int] = field(default_factory=dict)
    """GPU's index → bytes that the process holds on it."""
    oom_killed_at: float | None = None
    """When a kill showed in its control group."""
    model_shape: ModelShape | None = None
    """What the header of the model's file tells."""

    # ---- time --------------------------------------------------------------------------------------------------
    now: float = 0.0
    behind: bool = False
    """The log is being caught up with: what it tells is of times past."""
    foreseen_from: float = -math.inf
    """What was before is too long ago to foresee anything by."""
    unsettled: bool = False
    """Something has changed since the fill was worked out last."""

    @property
    def log_tells_tasks(self) -> bool:
        """The log shows launches and releases (verbosity 3 or more), so it can lead the polls."""
        if not self.has_log or (self.verbosity is not None and self.verbosity < _INFO_LEVEL):
            return False
        return self.info_seen

    def reshape(self) -> None:
        """Something about the pool's shape was learnt."""
        self.geometry = self.shape.geometry()
        self.unsettled = True
        runs = self.availability.state not in ("down", "loading")
        if self.geometry.slots is not None and self.log_tells_tasks and runs:
            self.pool.expect(self.geometry.slots)

    def new_life(self, at: float) -> None:
        """A new process: what was known of the old one's slots and numbers is gone.

        Its first line comes two or three times on some builds; only a model's loading ends a start.
        """
        self.lives += 1
        if self.lives > 1:
            self.shape.options = None  # the old process's; the new one's are looked for
        self.starting, self.life_at = True, at
        self.forecast.restart()
        self.listening = self.props = None
        self.pool.restart()
        self.upstream = None
        self.shape.forget_api()
        self.verbosity = None
        self.info_seen = False

    def gone(self) -> None:
        """The process ended."""
        self.availability.stopped()
        self.props = None
        self.shape.forget_api()
        self.pool.forget()
        self.upstream = None
