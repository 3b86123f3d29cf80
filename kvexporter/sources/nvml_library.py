"""NVIDIA's management library: finding it, loading it once, and seeing that the driver's package has replaced it."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

from kvexporter.facts import GpuReason
from kvexporter.sources.small_files import read_text

SONAME = "libnvidia-ml.so.1"
_PCI_NVIDIA = "0x10de"
_PCI_DISPLAY = "0x03"
_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")

_Identity = tuple[int, int, int, int]


class NoNvmlError(Exception):
    """NVML cannot be used: why, as a reason and in words."""

    def __init__(self, reason: GpuReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class NvmlLibrary:
    """The library as this process has it. A process can load it only once: a newer one on disk needs a new process."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._file: Path | None = None
        self._loaded: _Identity | None = None

    def load(self) -> Any:
        """The pynvml module with the library loaded; raises NoNvmlError.

        The module, which is large, is not imported on hosts without the library.
        """
        try:
            ctypes.CDLL(SONAME)
        except OSError as error:
            if str(error).startswith(f"{SONAME}: cannot open shared object file: No such file"):
                if nvidia_gpu_present(self._root):
                    raise NoNvmlError("no_library", f"there is an NVIDIA GPU, but no {SONAME}") from None
                raise NoNvmlError("no_gpu", "there is no NVIDIA GPU here") from None
            raise NoNvmlError("no_library", f"{SONAME} cannot be loaded: {error}") from None
        if self._file is None:
            self._file = _mapped_file()
            self._loaded = _identity(self._file)
        try:
            import pynvml
        except ImportError:
            raise NoNvmlError("no_module", "the Python package nvidia-ml-py is not installed") from None
        return pynvml

    def outdated(self) -> bool:
        """Whether a new process would load another library than this one has, and one that fits the running driver.

        While the old driver is still in the kernel, a new process would be no better off.
        """
        if self._file is None or self._loaded is None:
            return False
        now = _identity(self._file)
        if now is None or now == self._loaded:
            return False
        driver = read_text(self._root / "sys/module/nvidia/version")
        library = _VERSION.search(self._file.resolve().name)
        return driver is None or library is None or library[1] == driver


def nvidia_gpu_present(root: Path = Path("/")) -> bool:
    """Whether the kernel sees an NVIDIA GPU that this host has not given away to a virtual machine."""
    if (root / "proc/driver/nvidia/version").exists():
        return True
    for device in root.glob("sys/bus/pci/devices/*"):
        if read_text(device / "vendor") == _PCI_NVIDIA and (read_text(device / "class") or "").startswith(_PCI_DISPLAY):
            try:
                driver = (device / "driver").readlink().name
            except OSError:
                driver = ""
            if driver != "vfio-pci":
                return True
    return False


def _mapped_file() -> Path | None:
    """The name by which the loader found the library: the link in the folder of the file that is mapped."""
    try:
        maps = Path("/proc/self/maps").read_text("utf-8", "replace")
    except OSError:
        return None
    for line in maps.splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and "/libnvidia-ml.so" in words[5]:
            return Path(words[5].removesuffix(" (deleted)")).with_name(SONAME)
    return None


def _identity(file: Path | None) -> _Identity | None:
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size) if found is not None else None
