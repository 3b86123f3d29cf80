"""A real systemd and journald in namespaces (root only): units, restarts, sandboxes and journals as they really are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.paths import CACHE, ROOT, SetupMissingError, wait_for

SCRIPT = Path(__file__).with_name("real-systemd")


class RealSystemd:
    """One booted systemd. Use as a context manager; `units` maps file names to unit texts.

    `etc` maps paths below /etc to contents, `binds` maps targets below /opt to folders of the machine. `directory` is
    seen inside as /mnt/test.
    """

    def __init__(
        self,
        units: Mapping[str, str] | None = None,
        etc: Mapping[str, str] | None = None,
        binds: Mapping[str, Path] | None = None,
    ) -> None:
        if os.geteuid() != 0:
            raise RuntimeError("a real systemd is booted by root only")
        if not Path("/lib/systemd/systemd").exists():
            raise SetupMissingError("systemd")
        CACHE.mkdir(exist_ok=True)
        self.directory = Path(tempfile.mkdtemp(prefix="systemd-", dir=CACHE))
        self.directory.chmod(0o755)
        (self.directory / "units").mkdir()
        for name, text in (units or {}).items():
            (self.directory / "units" / name).write_text(textwrap.dedent(text))
        for name, text in (etc or {}).items():
            path = self.directory / "etc" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        lines = [f"{source} {target}\n" for target, source in (binds or {}).items()]
        (self.directory / "binds").write_text("".join(lines))

    def __enter__(self) -> RealSystemd:
        done = subprocess.run(
            [SCRIPT, "start", self.directory], capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode != 0:
            log = done.stdout + done.stderr
            self.__exit__(None, None, None)
            raise RuntimeError(f"systemd did not boot:\n{log}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run([SCRIPT, "stop", self.directory], timeout=60, check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def run(self, *command: str, check: bool = True, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a command inside; a failing one raises with what it printed unless `check` is off."""
        done = subprocess.run(
            [SCRIPT, "exec", self.directory, *command], capture_output=True, text=True, timeout=timeout, check=False
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def systemctl(self, *arguments: str, check: bool = True) -> str:
        return self.run("systemctl", *arguments, check=check).stdout

    def start(self, unit: str, deadline: float = 60.0) -> None:
        """Start a unit and wait until it says that it is ready; a failure tells what its journal says."""
        done = self.run("systemctl", "restart", unit, check=False, timeout=deadline)
        assert done.returncode == 0, f"{unit}: {done.stderr}\n{self.journal(unit)}"

    def journal(self, unit: str) -> str:
        """What the unit's journal holds, one message a line."""
        self.run("journalctl", "--sync")
        return self.run("journalctl", "-u", unit, "-o", "cat", "--no-pager").stdout

    def property(self, unit: str, name: str) -> str:
        """A property of a unit, as `systemctl show` words it."""
        return self.systemctl("show", unit, "-p", name, "--value").strip()

    def wait_state(self, unit: str, state: str, deadline: float = 30.0) -> None:
        """Wait for a unit's ActiveState; when it does not come, say what the unit's journal says."""
        try:
            wait_for(f"{unit} to be {state}", lambda: self.property(unit, "ActiveState") == state, deadline)
        except AssertionError as error:
            raise AssertionError(f"{error}; its journal:\n{self.journal(unit)}") from None

    def write(self, path: str, text: str) -> None:
        """Write a file inside."""
        target = self.directory / "written"
        target.write_text(textwrap.dedent(text))
        self.run("cp", "/mnt/test/written", path)


def installed_tree() -> dict[str, Path]:
    """Binds that give the booted systemd an installation in /opt/kvexporter, as the README describes it.

    The Python of these tests may lie below /root or /home, which the unit's sandbox hides; so the interpreter, the
    packages and this source tree are bound below /opt, with a virtual environment over them.
    """
    tree = CACHE / "installed"
    version = f"python3.{sys.version_info.minor}"
    binds = {"/opt/kvexporter": tree, "/opt/kvexporter-src": ROOT, "/opt/kvexporter-packages": _site_packages()}
    python = Path(sys.base_prefix) / "bin" / version
    library = ""
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        binds["/opt/python"] = Path(sys.base_prefix)
        python = Path("/opt/python/bin") / version
        # Its own libpython was found by the old path, and the machine's may be another one.
        library = "export LD_LIBRARY_PATH=/opt/python/lib\n"
    shutil.rmtree(tree, ignore_errors=True)
    packages = tree / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (tree / "bin").mkdir()
    (tree / "pyvenv.cfg").write_text(f"home = {python.parent}\ninclude-system-site-packages = false\n")
    (tree / "bin" / "python3").symlink_to(python)
    (packages / "kvexporter.pth").write_text("/opt/kvexporter-src\n/opt/kvexporter-packages\n")
    run_python = "/opt/kvexporter/bin/run-python"
    _script(tree / "bin" / "run-python", f'{library}exec /opt/kvexporter/bin/python3 "$@"')
    _script(tree / "bin" / "kvexporter", f'exec {run_python} -m kvexporter "$@"')
    return binds


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _site_packages() -> Path:
    return Path(sys.prefix) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
