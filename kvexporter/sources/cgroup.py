"""A process's control group: its memory, the limit on it, kills and pressure; cgroup v2, v1, and both at once (hybrid).

All numbers are of the whole group and what is below it: whatever else runs there is in them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvexporter.facts import CgroupSample

_NO_LIMIT = 1 << 60
"""v1 writes the largest number of whole pages for `no limit`; no machine has an exbibyte."""
MAX_BYTES = 1 << 22
"""Of one file; only a list of mounts can be long."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class _Mount:
    """Where a hierarchy can be seen: `root` is the group that is shown at `point`."""

    kind: str
    """v2, or v1 for v1's hierarchy of memory."""
    root: tuple[str, ...]
    point: Path


class CgroupReader:
    """Reads the control group of any process of this host, seen through `proc`.

    `files` goes before the mount points that `proc` tells: a test's own tree.
    """

    def __init__(self, proc: str = "/proc", files: str = "") -> None:
        self._proc = Path(proc)
        self._files = files
        self._mounts: list[_Mount] | None = None

    def read(self, pid: int) -> CgroupSample | None:
        """The group's memory now; None where it cannot be seen or does not count memory. Never raises.

        The root of all groups is no group: its numbers would be the machine's.
        """
        paths = _paths(_text(self._proc / str(pid) / "cgroup"))
        v2 = self._folder("v2", paths)
        if v2 is not None and (current := _number(v2[0] / "memory.current")) is not None:
            return _sample_v2(*v2, current)
        v1 = self._folder("v1", paths)
        if v1 is None or (v1[0] / "cgroup.sane_behavior").exists():  # only the root of all has this file
            return None
        current = _number(v1[0] / "memory.usage_in_bytes")
        # Both at once: memory is counted by v1, pressure by v2 alone.
        return None if current is None else _sample_v1(*v1, current, v2[0] if v2 is not None and v2[1] else None)

    def _folder(self, kind: str, paths: dict[str, tuple[str, ...]]) -> tuple[Path, int] | None:
        """The group's folder, and how many of its parents can be seen above it."""
        path = paths.get(kind)
        if path is None:
            return None
        if not self._mounts:  # not yet mounted is no final word
            self._mounts = list(_mounts(_text(self._proc / "self" / "mountinfo"), self._files))
        for mount in self._mounts:
            below = path[len(mount.root) :]
            # Above the root of what is mounted, as from within a container, nothing can be seen.
            if mount.kind == kind and path[: len(mount.root)] == mount.root and ".." not in below:
                return mount.point.joinpath(*below), len(below)
        return None


def _sample_v2(folder: Path, depth: int, current: int) -> CgroupSample:
    stat = _table(folder / "memory.stat")
    events = _table(folder / "memory.events")
    some, full = _pressure(folder)
    return CgroupSample(
        current_bytes=current,
        peak_bytes=_number(folder / "memory.peak"),
        limit_bytes=_least(_number(group / "memory.max") for group in _upwards(folder, depth)),
        anon_bytes=stat.get("anon"),
        file_bytes=stat.get("file"),
        limit_hits=events.get("oom"),
        oom_kills=events.get("oom_kill"),
        pressure_some_seconds=some,
        pressure_full_seconds=full,
    )


def _sample_v1(folder: Path, depth: int, current: int, v2: Path | None) -> CgroupSample:
    stat = _table(folder / "memory.stat")
    limits = [_number(group / "memory.limit_in_bytes") for group in _upwards(folder, depth)]
    some, full = _pressure(v2) if v2 is not None else (None, None)
    return CgroupSample(
        current_bytes=current,
        peak_bytes=_number(folder / "memory.max_usage_in_bytes"),
        # This one also knows of parents that cannot be seen here.
        limit_bytes=_least([*limits, stat.get("hierarchical_memory_limit")]),
        # Without total_ they are the group's own, without those below it.
        anon_bytes=stat.get("total_rss"),
        file_bytes=stat.get("total_cache"),
        limit_hits=None,
        oom_kills=_table(folder / "memory.oom_control").get("oom_kill"),
        pressure_some_seconds=some,
        pressure_full_seconds=full,
    )


def _paths(cgroup: str) -> dict[str, tuple[str, ...]]:
    """The process's path in v2 and in v1's hierarchy of memory, from /proc/PID/cgroup."""
    found = {}
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        kind = "v2" if number == "0" and not controllers else "v1" if "memory" in controllers.split(",") else None
        if kind is not None and not path.endswith(" (deleted)"):
            found[kind] = _parts(path)
    return found


def _mounts(mountinfo: str, files: str) -> Iterator[_Mount]:
    for line in mountinfo.splitlines():
        fields, separator, rest = line.partition(" - ")
        words, kinds = fields.split(" "), rest.split(" ")
        if not separator or len(words) < 5 or len(kinds) < 3:
            continue
        root, point = _parts(_plain(words[3])), Path(files + _plain(words[4]))
        if kinds[0] == "cgroup2":
            yield _Mount("v2", root, point)
        elif kinds[0] == "cgroup" and "memory" in kinds[2].split(","):
            yield _Mount("v1", root, point)


def _upwards(folder: Path, depth: int) -> Iterator[Path]:
    yield folder
    yield from list(folder.parents)[:depth]


def _pressure(folder: Path) -> tuple[float | None, float | None]:
    """Seconds in which some, and in which all tasks of a group waited for memory. Kernels without PSI have none."""
    found: dict[str, float] = {}
    for line in _text(folder / "memory.pressure").splitlines():
        words = line.split()
        if words and words[-1].startswith("total=") and words[-1][6:].isdecimal():
            found[words[0]] = int(words[-1][6:]) / 1e6
    return found.get("some"), found.get("full")


def _table(path: Path) -> dict[str, int]:
    """A file of lines `name number`."""
    found = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if value.isdecimal():
            found[name] = int(value)
    return found


def _number(path: Path) -> int | None:
    """A file's one number; None for `max`, and where it cannot be read."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _least(limits: Iterator[int | None] | list[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None and limit < _NO_LIMIT), default=None)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _plain(text: str) -> str:
    """Without the octal escapes that mountinfo writes for spaces and the like."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


def _text(path: Path) -> str:
    # Read for every server again and again: opening them as text files costs several times as much.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        data = b""
        while len(data) < MAX_BYTES and (piece := os.read(descriptor, 65_536)):
            data += piece
        return data.decode("utf-8", "surrogateescape")
    except OSError:  # pressure that was turned off at boot is there and cannot be read
        return ""
    finally:
        os.close(descriptor)
