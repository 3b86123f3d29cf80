"""GPU memory of a process by its DRM clients, from /proc/PID/fdinfo: works for every driver of the kernel's own."""

from __future__ import annotations

import os
from pathlib import Path

MAX_FILES = 65536
"""Open files of one process that are looked at."""

_UNITS = {"": 1, "KiB": 1 << 10, "kB": 1 << 10, "MiB": 1 << 20}


def drm_memory(pid: int, root: Path = Path("/")) -> dict[str, dict[str, int]] | None:
    """PCI address → memory region (vram, gtt) → bytes that the process holds there.

    A client counts once, however many descriptors lead to it. None without permission to look (another user's
    process), and when the process is gone.
    """
    folder = root / "proc" / str(pid)
    try:
        numbers = os.listdir(folder / "fd")  # noqa: PTH208 - names only
    except OSError:
        return None
    held: dict[str, dict[str, int]] = {}
    seen: set[tuple[str, str]] = set()
    for number in numbers[:MAX_FILES]:
        try:
            if not os.readlink(folder / "fd" / number).startswith("/dev/dri/"):  # noqa: PTH115 - often many files
                continue
            text = (folder / "fdinfo" / number).read_text("utf-8", "replace")
        except OSError:
            continue  # closed meanwhile
        fields = dict(_fields(text))
        device = fields.get("drm-pdev") or fields.get("pdev")
        # Old kernels do not name the client: there each descriptor is one.
        client = fields.get("drm-client-id") or f"descriptor {number}"
        if device is None or (device, client) in seen:
            continue
        seen.add((device, client))
        regions = held.setdefault(device, {})
        for region in ("vram", "gtt"):
            size = _region(fields, region)
            if size is not None:
                regions[region] = regions.get(region, 0) + size
    return held


def _fields(text: str) -> list[tuple[str, str]]:
    pairs = (line.partition(":") for line in text.splitlines())
    return [(name.strip(), value.strip()) for name, colon, value in pairs if colon]


def _region(fields: dict[str, str], region: str) -> int | None:
    """What is resident in a region: today's name, the one that replaces it, and that of kernels before 5.19."""
    for name in (f"drm-memory-{region}", f"drm-resident-{region}", f"{region} mem"):
        size = _bytes(fields.get(name, ""))
        if size is not None:
            return size
    return None


def _bytes(text: str) -> int | None:
    number, _, unit = text.partition(" ")
    if not (number.isascii() and number.isdigit()) or unit not in _UNITS:
        return None
    return int(number) * _UNITS[unit]
