"""AMD's GPUs, from the amdgpu driver's files in /sys. Needs no library and no permission."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from kvexporter.facts import GpuSample
from kvexporter.sources.drm_fdinfo import drm_memory
from kvexporter.sources.small_files import read_number, read_text

VENDOR = "0x1002"
_CARD = re.compile(r"card(\d+)")
_UNIFIED_METRICS = (2, 3)
"""Format revisions of the gpu_metrics table that only APUs have; cards have 1."""
_UNIFIED_DEVICES = frozenset({"0x74a0"})
"""APUs whose table has a card's format: Instinct MI300A."""


class AmdReader:
    """Reads all AMD GPUs below `root`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._unified: dict[str, bool] = {}

    def read(self, pids: Iterable[int]) -> list[GpuSample]:
        """All cards by number, with the memory that these processes hold on each. Never raises OSError."""
        cards = list(self._cards())
        if not cards:
            return []
        clients = {pid: held for pid in pids if (held := drm_memory(pid, self._root)) is not None}
        return [self._card(path, clients) for path in cards]

    def _cards(self) -> Iterator[Path]:
        folder = self._root / "sys/class/drm"
        try:
            names = [entry.name for entry in folder.iterdir() if _CARD.fullmatch(entry.name)]  # not their connectors
        except OSError:
            return
        for name in sorted(names, key=lambda name: int(name[4:])):
            if read_text(folder / name / "device/vendor") == VENDOR:
                yield folder / name

    def _card(self, path: Path, clients: dict[int, dict[str, dict[str, int]]]) -> GpuSample:
        device = path / "device"
        address = device.resolve().name
        model = read_text(device / "device") or ""
        # Asking for more than memory would wake a card that sleeps to save power.
        asleep = read_text(device / "power/runtime_status") == "suspended"
        unified = self._is_unified(device, address, model, asleep)
        total = read_number(device / "mem_info_vram_total")
        busy = None if asleep else read_number(device / "gpu_busy_percent")
        temperature = None if asleep else _hwmon(device, "temp1_input")
        power = None if asleep else _hwmon(device, "power1_average", "power1_input")
        return GpuSample(
            index=path.name,
            uuid=read_text(device / "unique_id") or address,
            name=read_text(device / "product_name") or f"AMD GPU {model.removeprefix('0x')}".strip(),
            vendor="amd",
            memory_total=total,
            memory_used=read_number(device / "mem_info_vram_used"),
            memory_reason="not_supported" if total is None else None,
            unified=unified,
            utilization_ratio=busy / 100 if busy is not None else None,
            temperature_celsius=temperature / 1000 if temperature is not None else None,
            power_watts=power / 1e6 if power is not None else None,
            processes={
                pid: size
                for pid, held in clients.items()
                if address in held and (size := _held(held[address], unified)) is not None
            },
            gtt_total=read_number(device / "mem_info_gtt_total"),
            gtt_used=read_number(device / "mem_info_gtt_used"),
        )

    def _is_unified(self, device: Path, address: str, model: str, asleep: bool) -> bool | None:
        """Whether it is an APU. Asked once, for the driver asks the hardware; None where it does not tell."""
        if model in _UNIFIED_DEVICES:
            return True
        if address not in self._unified:
            if asleep:
                return None
            try:
                with (device / "gpu_metrics").open("rb") as file:
                    header = file.read(4)  # size of the table (two bytes), format revision, content revision
            except OSError:
                return None
            if len(header) < 4:
                return None
            self._unified[address] = header[2] in _UNIFIED_METRICS
        return self._unified[address]


def _held(regions: dict[str, int], unified: bool | None) -> int | None:
    """Memory that a process holds on a GPU. An APU's is in both regions, its carve-out and the host's memory.

    What a process of a discrete card has in the gtt region is the host's memory, and counts there.
    """
    if not unified:
        return regions.get("vram")
    return sum(regions.values()) if regions else None


def _hwmon(device: Path, *names: str) -> int | None:
    for folder in sorted((device / "hwmon").glob("hwmon*")):
        for name in names:
            if (number := read_number(folder / name)) is not None:
                return number
    return None
