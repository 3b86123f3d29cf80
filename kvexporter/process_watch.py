"""What the host tells of each server's process: its use of memory and CPU time, its control group, its starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvexporter.bell import Bell
from kvexporter.facts import FoundProcess
from kvexporter.keeper import Keeper
from kvexporter.llama.memory_options import memory_options
from kvexporter.sources.cgroup import CgroupReader
from kvexporter.sources.process import ProcessReader
from kvexporter.sources.process_end import ProcessEnds
from kvexporter.starts import StartRecord, decode_start, encode_start
from kvexporter.store import StoredStart
from kvexporter.watched import Watched

CGROUP_SECONDS = 10.0
"""A control group is a dozen files, which change slowly."""
BUSY_CORES = 0.05
"""More CPU time than answering polls takes, in cores."""


class ProcessWatch:
    """Reads the processes of all servers. `clock` gives unix seconds."""

    def __init__(self, keeper: Keeper, clock: Callable[[], float]) -> None:
        self._keeper = keeper
        self._clock = clock
        self._processes = ProcessReader()
        self._cgroups = CgroupReader()
        self.ended = Bell()
        """A process that was looked at has ended since this was cleared."""
        self._ends = ProcessEnds(lambda pid: self.ended.set())

    def look(self, watched: Watched, now: float) -> bool:
        """Read the server's process; False if it was there and is gone."""
        process = watched.target.process
        if process is None:
            if watched.model.process is not None:
                watched.model.process_seen(None, now)
            return True
        self._ends.watch(process.pid)  # first: what is read then is the process that is watched
        sample = self._processes.read(process.pid)
        if sample is not None and abs(sample.start_time - process.start_time) > 1.0:
            sample = None  # the number was given to another process
        watched.model.process_seen(sample, now)
        if sample is not None:
            if not 0 <= now - watched.cgroup_seen < CGROUP_SECONDS:
                watched.cgroup_seen = now
                watched.model.cgroup_seen(self._cgroups.read(process.pid))
            self._keep_start(watched, process)
        if sample is None:
            watched.target = replace(watched.target, process=None)
            watched.writer = None
            return False
        if watched.cpu_seen is not None and now > watched.cpu_seen[0]:
            at, used = watched.cpu_seen
            busy = (sample.cpu_seconds - used) / (now - at) > BUSY_CORES
            if busy != watched.cpu_busy and watched.poller is not None:
                watched.poller.wake()
            watched.cpu_busy = busy
        watched.cpu_seen = (now, sample.cpu_seconds)
        return True

    def keep(self, pids: set[int]) -> None:
        """Watch the ends of no others any more."""
        self._ends.keep(pids)

    def _keep_start(self, watched: Watched, process: FoundProcess) -> None:
        """Have the memory of a server that has settled after its start written, or take what was written of it."""
        if not self._keeper.settled:
            return
        memory, name = watched.model.memory_at_ready, watched.target.name
        if watched.start_recalled != process.pid:
            watched.start_recalled = process.pid
            detail = self._keeper.last_start(name)
            known = decode_start(detail) if detail is not None else None
            if known is not None:
                memory.recall(known.settled_start())
        start = memory.take_news()
        if start is None:
            return
        shown = watched.model.snapshot(self._clock())
        record = StartRecord(
            pid=start.pid,
            started=start.started,
            settled=start.settled,
            late=start.late,
            resident=start.memory.resident,
            anon=start.memory.anon,
            gpu=start.memory.gpu,
            capacity=shown.geometry.capacity,
            slots=shown.geometry.slots,
            kv_cache=shown.kv_cache_bytes,
            model=shown.model,
            build=shown.build,
            options=memory_options(process.arguments, process.environment),
        )
        self._keeper.keep_start(StoredStart(name, start.started, encode_start(record)))
