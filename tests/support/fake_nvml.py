"""A real libnvidia-ml.so.1, compiled from C, whose answers a test writes into a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

SOURCE = Path(__file__).with_name("fake_nvml.c")


class FakeNvml:
    """Compiled into `folder` as the driver's package installs it: libnvidia-ml.so.1 is a link to a versioned file."""

    def __init__(self, folder: Path, version: str = "580.95.05") -> None:
        self.folder = folder
        folder.mkdir()
        self.state_file = folder / "state"
        self.calls_file = folder / "calls"
        self.tell()
        self.install(version)

    def install(self, version: str) -> None:
        """Put the library of a driver's version in place, as an upgrade does."""
        library = self.folder / f"libnvidia-ml.so.{version}"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1",
             f'-DDRIVER_VERSION="{version}"', "-o", library, SOURCE],
            check=True,
        )  # fmt: skip
        link = self.folder / "new"
        link.symlink_to(library.name)
        link.replace(self.folder / "libnvidia-ml.so.1")

    def tell(self, *lines: str) -> None:
        """What the library answers from now on."""
        new = self.state_file.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in (f"calls {self.calls_file}", *lines)))
        new.replace(self.state_file)

    def calls(self, function: str) -> int:
        """How often a function was called."""
        return self.calls_file.read_text().split().count(function) if self.calls_file.exists() else 0

    @property
    def environment(self) -> dict[str, str]:
        """What makes the loader find it. LD_LIBRARY_PATH counts for processes started with it only."""
        return {"LD_LIBRARY_PATH": str(self.folder), "FAKE_NVML_STATE": str(self.state_file)}


class GpuProbe:
    """A process that reads the GPUs below `root` each time that it is asked to; a context manager."""

    def __init__(self, root: Path, nvml: FakeNvml | None = None, deadline: float = 20.0) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.gpu_probe", str(root), str(deadline)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**environment, **(nvml.environment if nvml is not None else {})},
        )

    def __enter__(self) -> GpuProbe:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(30) == 0

    def read(self, *pids: int, clock: float = 0.0) -> dict[str, Any]:
        """One round at `clock` (monotonic seconds), as the fields of GpuReport, and how long it took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"pids": pids, "clock": clock}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer
