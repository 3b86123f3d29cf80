"""What a server's process took once it was ready and had settled, and what it has taken since.

Memory still grows for a while after a server says that it is ready. It has settled once it was ready and its resident
memory has not grown by more than 1 % for 10 s. No clock: every sample brings its time.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvexporter.facts import ProcessSample

SETTLE_SECONDS = 10.0
SETTLED_GROWTH = 1.01
LATE_SECONDS = 60.0
"""A process first seen so long after its start may have grown by use before."""
SAME_START_SECONDS = 2.0
"""Start times of one process differ by so much when the clock is corrected between two runs of the exporter."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process takes, in bytes; None: not known."""

    resident: int
    anon: int | None = None
    gpu: int | None = None

    def kinds(self) -> dict[str, int]:
        """The known ones by name."""
        named = (("resident", self.resident), ("anon", self.anon), ("gpu", self.gpu))
        return {name: size for name, size in named if size is not None}


@dataclass(frozen=True, slots=True)
class SettledStart:
    """One start of a server: the process, and its memory once it had settled."""

    pid: int
    started: float
    settled: float
    """When it had settled."""
    late: bool
    """It was first looked at long after its start, so that use is in the numbers."""
    memory: Memory


class MemoryAtReady:
    """Follows one server's process over its starts."""

    def __init__(self) -> None:
        self.start: SettledStart | None = None
        """The current process's, once it has settled."""
        self._process: tuple[int, float] | None = None
        self._late = False
        self._now: Memory | None = None
        self._lowest = 0
        self._since: float | None = None
        """Since when the memory has not grown; None while the server is not ready."""
        self._news: SettledStart | None = None

    def seen(self, sample: ProcessSample, at: float, *, ready: bool, gpu: int | None = None) -> None:
        """Take one look at the process; `gpu`: bytes on all GPUs together."""
        if self._process != (sample.pid, sample.start_time):
            self.gone()
            self._process = (sample.pid, sample.start_time)
            self._late = at - sample.start_time > LATE_SECONDS
        self._now = Memory(sample.resident_bytes, sample.anon_bytes, gpu)
        if self.start is not None:
            return
        if not ready:
            self._since = None
        elif self._since is None or at < self._since or sample.resident_bytes > self._lowest * SETTLED_GROWTH:
            self._since, self._lowest = at, sample.resident_bytes
        else:
            self._lowest = min(self._lowest, sample.resident_bytes)
            if at - self._since >= SETTLE_SECONDS:
                self.start = self._news = SettledStart(*self._process, at, self._late, self._now)

    def gone(self) -> None:
        """The process has ended."""
        self.start = self._process = self._now = self._since = self._news = None

    def recall(self, start: SettledStart) -> None:
        """What an earlier exporter saw; taken if it was of the process that runs now."""
        if self._process is None:
            return
        pid, started = self._process
        if pid == start.pid and abs(started - start.started) <= SAME_START_SECONDS:
            self.start, self._news = start, None

    def take_news(self) -> SettledStart | None:
        """The start that has settled since the last call."""
        news, self._news = self._news, None
        return news

    def at_ready(self) -> dict[str, int]:
        """Bytes by kind once the server had settled; empty before, and where use is in the numbers."""
        return self.start.memory.kinds() if self.start is not None and not self.start.late else {}

    def growth(self) -> dict[str, int]:
        """Bytes by kind that the process takes more than then."""
        now = self._now.kinds() if self._now is not None else {}
        return {kind: now[kind] - size for kind, size in self.at_ready().items() if kind in now}
