"""What systemd, /proc and the control group tell of a server's process, and what that changes in its model."""

from __future__ import annotations

from kvexporter.facts import CgroupSample, ProcessSample, UnitEvent, UnitExited, UnitFailed, UnitStarted, UnitStopped
from kvexporter.server_parts import ServerParts

LIFE_SECONDS = 1.0
"""A process's first line is logged within this time."""


def take_unit_event(parts: ServerParts, event: UnitEvent, at: float) -> None:
    """What systemd or journald says of the unit."""
    parts.ledger.unit(event, at, parts.geometry, parts.build)
    parts.unit_life.observe(event, at)
    match event:
        case UnitStarted():
            parts.availability.started()
        case UnitExited() | UnitFailed() | UnitStopped():
            parts.gone()
        case _:
            pass


def take_process(parts: ServerParts, sample: ProcessSample | None, at: float) -> None:
    """The process as /proc shows it; None: it is gone."""
    was = parts.process
    parts.process = sample
    other = was is not None and (sample is None or (was.pid, was.start_time) != (sample.pid, sample.start_time))
    # Its log may have shown the next process already: then only the old one's end is news, and old.
    passed = was is not None and parts.life_at is not None and parts.life_at > was.start_time + LIFE_SECONDS
    if not (other and passed):
        if sample is None or other:
            parts.gone()
        parts.availability.process(sample is not None)
    if sample is not None:
        parts.unit_life.process_started(sample.start_time)
    if other:
        parts.gpu_memory = {}
    if sample is None:
        parts.cgroup = None
        parts.memory_at_ready.gone()
    else:
        gpu = sum(parts.gpu_memory.values()) if parts.gpu_memory else None
        parts.memory_at_ready.seen(sample, at, ready=parts.availability.state == "ready", gpu=gpu)


def take_cgroup(parts: ServerParts, sample: CgroupSample | None) -> None:
    """The control group of the process; None where it cannot be read."""
    before = parts.cgroup.oom_kills if parts.cgroup is not None else None
    if sample is not None and sample.oom_kills is not None and before is not None and sample.oom_kills > before:
        parts.oom_killed_at = parts.now
    parts.cgroup = sample
