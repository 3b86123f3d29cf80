"""The few lines of /proc that say who a process is and when it started."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcStat:
    """What is used of /proc/PID/stat."""

    state: str
    parent: int
    major_faults: int
    cpu_seconds: float
    start_ticks: int
    resident_pages: int

    @property
    def dead(self) -> bool:
        """A zombie, or on its way to be one: it holds nothing any more."""
        return self.state in ("Z", "X", "x")


def read_proc_stat(folder: Path) -> ProcStat | None:
    """Read `folder`/stat; None when the process is gone or the text is not what Linux writes."""
    try:
        text = (folder / "stat").read_bytes()
        # The command's name, in parentheses, may hold spaces and parentheses itself.
        fields = text[text.rindex(b")") + 1 :].split()
        return ProcStat(
            state=fields[0].decode("ascii", "replace"),
            parent=int(fields[1]),
            major_faults=int(fields[9]),
            cpu_seconds=(int(fields[11]) + int(fields[12])) / TICKS,
            start_ticks=int(fields[19]),
            resident_pages=int(fields[21]),
        )
    except (OSError, ValueError, IndexError):
        return None


def start_time(proc: str, ticks: int) -> float:
    """When a process started, unix seconds, from its clock ticks since the boot."""
    return boot_time(proc) + ticks / TICKS


@lru_cache(maxsize=8)
def boot_time(proc: str) -> float:
    """When the host booted, unix seconds. 0 where that is not told.

    Read once: the kernel moves it whenever the clock is set, and a process must not seem to be another one for that.
    """
    try:
        for line in (Path(proc) / "stat").read_bytes().splitlines():
            if line.startswith(b"btime "):
                return float(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return 0.0
