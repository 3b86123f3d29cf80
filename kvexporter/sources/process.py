"""A process's memory, CPU time, faults and open files, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

from kvexporter.facts import ProcessSample
from kvexporter.sources.proc_stat import read_proc_stat, start_time

PAGE = os.sysconf("SC_PAGE_SIZE")
_MEMORY = {
    b"VmRSS:": "resident",
    b"RssAnon:": "anon",
    b"RssFile:": "file",
    b"RssShmem:": "shmem",
    b"VmSwap:": "swap",
}


class ProcessReader:
    """Reads any process of this host, seen through `proc`."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc

    def read(self, pid: int) -> ProcessSample | None:
        """What /proc says now; None when the process is gone (a zombie is). Never raises.

        The number may have been given to another process: compare `start_time` with the one known.
        """
        folder = Path(self._proc) / str(pid)
        stat = read_proc_stat(folder)
        if stat is None or stat.dead:
            return None
        memory = _memory(folder)
        return ProcessSample(
            pid=pid,
            start_time=start_time(self._proc, stat.start_ticks),
            cpu_seconds=stat.cpu_seconds,
            # stat's count may lag behind by some pages per thread: status is exact where it can be read.
            resident_bytes=memory.get("resident", stat.resident_pages * PAGE),
            anon_bytes=memory.get("anon"),
            file_bytes=memory.get("file"),
            shmem_bytes=memory.get("shmem"),
            swap_bytes=memory.get("swap"),
            major_faults=stat.major_faults,
            open_fds=_open_fds(folder),
        )


def _memory(folder: Path) -> dict[str, int]:
    """Bytes by kind from `status`, which writes kB for KiB."""
    found: dict[str, int] = {}
    try:
        for line in (folder / "status").read_bytes().splitlines():
            words = line.split()
            if len(words) == 3 and words[0] in _MEMORY and words[1].isdigit() and words[2] == b"kB":
                found[_MEMORY[words[0]]] = int(words[1]) * 1024
    except OSError:
        pass
    return found


def _open_fds(folder: Path) -> int | None:
    """Number of open descriptors; None without the permission to look (another user's process)."""
    try:
        return len(os.listdir(folder / "fd"))  # noqa: PTH208 - names only, a path object each would cost more
    except OSError:
        return None
