"""Folders shaped like /proc and /sys of machines with GPUs; `root` is given to the readers in place of /."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path


class MachineTree:
    """A machine without any GPU; parts are added one by one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._write("proc/meminfo", "")

    def _write(self, path: str, content: str | bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    def memory(self, total: int, available: int, swap_free: int = 0, huge: tuple[int, int] = (0, 0)) -> None:
        """KiB, and huge pages of 2 MiB: all and free ones."""
        self._write(
            "proc/meminfo",
            f"MemTotal:       {total} kB\n"
            f"MemFree:        {available // 3} kB\n"
            f"MemAvailable:   {available} kB\n"
            "Buffers:          241604 kB\n"
            "Cached:         55555555 kB\n"
            "SwapCached:            0 kB\n"
            f"SwapTotal:      {swap_free + 4} kB\n"
            f"SwapFree:       {swap_free} kB\n"
            "Shmem:             12345 kB\n"
            "AnonHugePages:         0 kB\n"
            f"HugePages_Total:   {huge[0]}\n"
            f"HugePages_Free:    {huge[1]}\n"
            "HugePages_Rsvd:        0\n"
            "HugePages_Surp:        0\n"
            "Hugepagesize:       2048 kB\n"
            f"Hugetlb:         {huge[0] * 2048} kB\n",
        )

    def jetson(self, model: str, compatible: str, load: str = "platform/gpu.0/load") -> None:
        """The device tree, the GPU's load of 34.5 %, and thermal zones with the GPU's at 52.343 °C."""
        self._write("proc/device-tree/model", model.encode() + b"\0")
        self._write("proc/device-tree/compatible", compatible.encode() + b"\0")
        self._write(f"sys/devices/{load}", "345\n")
        for number, (kind, temperature) in enumerate((("cpu-thermal", 48000), ("gpu-thermal", 52343))):
            self._write(f"sys/class/thermal/thermal_zone{number}/type", f"{kind}\n")
            self._write(f"sys/class/thermal/thermal_zone{number}/temp", f"{temperature}\n")

    def pci(self, address: str, vendor: str, kind: str = "0x030000", driver: str | None = None) -> Path:
        """A PCI device; gives its folder."""
        path = f"sys/devices/pci0000:00/0000:00:08.1/{address}"
        self._write(f"{path}/vendor", f"{vendor}\n")
        self._write(f"{path}/class", f"{kind}\n")
        folder = self.root / path
        if driver is not None:
            (folder / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
        bus = self.root / "sys/bus/pci/devices"
        bus.mkdir(parents=True, exist_ok=True)
        (bus / address).symlink_to(f"../../../devices/pci0000:00/0000:00:08.1/{address}")
        return folder

    def amd(
        self,
        card: str,
        address: str,
        device: str,
        vram: tuple[int, int],
        gtt: tuple[int, int],
        *,
        metrics_format: int | None = None,
        busy: int = 42,
        power: str = "power1_average",
        files: Mapping[str, str] | None = None,
    ) -> Path:
        """A card of the amdgpu driver: (total, used) bytes; `metrics_format` of its gpu_metrics table."""
        folder = self.pci(address, "0x1002", driver="amdgpu")
        contents = {
            "device": device,
            "mem_info_vram_total": str(vram[0]),
            "mem_info_vram_used": str(vram[1]),
            "mem_info_vis_vram_total": str(vram[0]),
            "mem_info_gtt_total": str(gtt[0]),
            "mem_info_gtt_used": str(gtt[1]),
            "gpu_busy_percent": str(busy),
            "product_name": "",
            "power/runtime_status": "active",
            "hwmon/hwmon3/name": "amdgpu",
            "hwmon/hwmon3/temp1_input": "47000",
            f"hwmon/hwmon3/{power}": "35046000",
            **(files or {}),
        }
        path = folder.relative_to(self.root)
        for name, text in contents.items():
            self._write(f"{path}/{name}", f"{text}\n")
        if metrics_format is not None:
            self._write(f"{path}/gpu_metrics", struct.pack("<HBB", 120, metrics_format, 3) + bytes(116))
        drm = folder / "drm" / card
        drm.mkdir(parents=True)
        (drm / "device").symlink_to(f"../../../{address}")
        classes = self.root / "sys/class/drm"
        classes.mkdir(parents=True, exist_ok=True)
        (classes / card).symlink_to(f"../../devices/pci0000:00/0000:00:08.1/{address}/drm/{card}")
        (classes / f"{card}-DP-1").symlink_to(f"../../devices/pci0000:00/0000:00:08.1/{address}/drm/{card}")
        return folder

    def drm_file(self, pid: int, number: int, text: str, target: str = "/dev/dri/renderD128") -> None:
        """An open file of a process, with what its driver says about it."""
        folder = self.root / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        (folder / "fd" / str(number)).symlink_to(target)
        self._write(f"proc/{pid}/fdinfo/{number}", f"pos:\t0\nflags:\t02100002\nmnt_id:\t24\nino:\t912\n{text}")


def client(number: int, address: str, vram: str, gtt: str) -> str:
    """What amdgpu writes into fdinfo."""
    return (
        "drm-driver:\tamdgpu\n"
        f"drm-client-id:\t{number}\n"
        f"drm-pdev:\t{address}\n"
        "pasid:\t32770\n"
        f"drm-memory-vram:\t{vram}\n"
        f"drm-memory-gtt: \t{gtt}\n"
        "drm-memory-cpu: \t0 KiB\n"
        f"amd-memory-visible-vram:\t{vram}\n"
        "drm-engine-compute:\t1234567 ns\n"
    )
