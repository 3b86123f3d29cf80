"""The host's memory and what kind of machine it is, from /proc."""

from __future__ import annotations

from pathlib import Path

from kvexporter.facts import HostMemory

_FIELDS = {
    b"MemTotal": "total",
    b"MemAvailable": "available",
    b"SwapFree": "swap_free",
    b"HugePages_Total": "huge_pages",
    b"HugePages_Free": "huge_pages_free",
    b"Hugepagesize": "huge_page_bytes",
}
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel gives the host's own PID namespace this number, always."""


def read_host_memory(root: Path = Path("/")) -> HostMemory:
    """Read /proc/meminfo below `root`, which writes kB for KiB; what is not there is None. Never raises."""
    found: dict[str, int] = {}
    try:
        for line in (root / "proc/meminfo").read_bytes().splitlines():
            name, _, rest = line.partition(b":")
            words = rest.split()
            if name in _FIELDS and words and words[0].isdigit():
                found[_FIELDS[name]] = int(words[0]) * (1024 if words[1:] == [b"kB"] else 1)
    except OSError:
        pass
    return HostMemory(**found)


def is_tegra(root: Path = Path("/")) -> bool:
    """Whether the device tree calls this machine a Tegra (Jetson, IGX, DRIVE)."""
    try:
        return b"tegra" in (root / "proc/device-tree/compatible").read_bytes()
    except OSError:
        return False


def machine_model(root: Path = Path("/")) -> str:
    """The machine's name by its device tree; empty where there is none."""
    try:
        return (root / "proc/device-tree/model").read_bytes().rstrip(b"\0").decode("utf-8", "replace")
    except OSError:
        return ""


def in_own_pid_namespace(root: Path = Path("/")) -> bool:
    """Whether this process sees other numbers for processes than the host does, as in a container."""
    try:
        return str((root / "proc/self/ns/pid").readlink()) != INITIAL_PID_NAMESPACE
    except OSError:
        return False
