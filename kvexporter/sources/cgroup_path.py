"""Which systemd unit or container a process runs in, from its /proc/PID/cgroup."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_CONTAINER = re.compile(r"(?:^|[-:/])([0-9a-f]{64})(?=$|[./:])")
_USER_MANAGER = re.compile(r"user@(\d+)\.service")
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]+\.(?:service|scope)")
_CONTAINER_SCOPE = re.compile(r"(?:docker|libpod|crio|cri-containerd|cri-o)-(?:conmon-)?[0-9a-f]{64}\.scope")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a process runs, as systemd sees it."""

    unit: str | None = None
    """The innermost unit of the service manager that started it: the system's, or the user's if `user` is set.

    Of a container only the unit that is its own, never that of an engine which runs others too."""
    user: int | None = None
    """The user whose own systemd manages the unit."""
    container: str | None = None
    """The container's full id."""


def placement(cgroup: str) -> Placement:
    """Read the text of /proc/PID/cgroup (v1, v2 or both).

    A login session's scope (session-N.scope) and a container's scope are no units of the process's own: None.
    """
    path = _systemd_path(cgroup)
    containers = _CONTAINER.findall(path) or _CONTAINER.findall(cgroup)
    container = containers[-1] if containers else None
    parts = [part.removeprefix("_") for part in path.split("/") if part]  # systemd escapes with a leading _
    parts = _after_slices(parts)
    manager = _USER_MANAGER.fullmatch(parts[0]) if parts else None
    user: int | None = None
    if manager is not None:
        within = _after_slices(parts[1:])
        if within and within[0] != "init.scope":
            user, parts = int(manager[1]), within
    unit = parts[0] if parts and _UNIT.fullmatch(parts[0]) else None
    if unit is not None and (_CONTAINER_SCOPE.fullmatch(unit) or re.fullmatch(r"session-.+\.scope", unit)):
        unit = None
    if container is not None and parts[1:2] != [f"libpod-payload-{container}"]:
        unit = None  # the engine's (k3s.service): only Podman runs a container in the unit that starts it (a quadlet)
    return Placement(unit, user if unit is not None else None, container)


def own_unit() -> str | None:
    """The unit that this process runs in; None outside of one, and where that cannot be read."""
    try:
        return placement(Path("/proc/self/cgroup").read_text(errors="replace")).unit
    except OSError:
        return None


def _systemd_path(cgroup: str) -> str:
    """The path in the hierarchy that systemd manages: v1's name=systemd, else v2's."""
    paths = {}
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths["v2" if number == "0" and not controllers else controllers] = path
    named = paths.get("name=systemd", "/")
    return named if named != "/" else paths.get("v2", "/")


def _after_slices(parts: list[str]) -> list[str]:
    for index, part in enumerate(parts):
        if not part.endswith(".slice"):
            return parts[index:]
    return []
