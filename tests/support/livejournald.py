"""A real systemd-journald for tests, without systemd as PID 1. Needs root and Debian's systemd package."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal

from tests.support.paths import SetupMissingError, wait_for

_PLACES = (Path("/lib/systemd/systemd-journald"), Path("/usr/lib/systemd/systemd-journald"))


class LiveJournald:
    """A journald of its own: "private" in a mount namespace, with persistent files under `directory`; or
    "namespace", a journal namespace of this host, whose volatile files a reader finds by `namespace`.

    Its writers and readers live outside: use `stream` to write, and `directory` or `namespace` to read.
    """

    def __init__(
        self, mode: Literal["private", "namespace"] = "private", settings: Mapping[str, str] | None = None
    ) -> None:
        self.mode = mode
        self.namespace = "t" + uuid.uuid4().hex[:8]
        self._root = Path(tempfile.mkdtemp(prefix="journald"))
        self._root.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None
        self._streams: list[socket.socket] = []
        lines = {
            "Audit": "no",
            "ReadKMsg": "no",
            "ForwardToSyslog": "no",
            "ForwardToWall": "no",
            "RateLimitIntervalSec": "0",
            "Storage": "volatile" if mode == "namespace" else "persistent",
            # Above 30 s, and an instance for a namespace does not end itself when it is idle.
            "MaxRetentionSec": "1h",
            **(settings or {}),
        }
        text = "[Journal]\n" + "".join(f"{key}={value}\n" for key, value in lines.items())
        machine = Path("/etc/machine-id").read_text().strip()
        self.run = Path(f"/run/systemd/journal.{self.namespace}") if mode == "namespace" else self._root / "run"
        self.directory = self._root / "var"
        self.machine_directory = (
            Path(f"/run/log/journal/{machine}.{self.namespace}") if mode == "namespace" else self.directory / machine
        )
        self._settings_file = (
            Path(f"/etc/systemd/journald@{self.namespace}.conf")
            if mode == "namespace"
            else self._root / "journald.conf"
        )
        self._settings_file.write_text(text)

    def __enter__(self) -> LiveJournald:
        self.run.mkdir(parents=True)
        if self.mode == "private":
            self.directory.mkdir()
            (self._root / "runlog").mkdir()
            # Without it the first lines would go to /run, and be copied later.
            (self.run / "flushed").touch()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in self._streams:
            stream.close()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        if self.mode == "namespace":
            shutil.rmtree(self.run, ignore_errors=True)
            shutil.rmtree(self.machine_directory, ignore_errors=True)
            self._settings_file.unlink(missing_ok=True)
        shutil.rmtree(self._root, ignore_errors=True)

    def start(self) -> None:
        """Start journald, as at first, or again after `kill`."""
        self._process = subprocess.Popen(
            self._command(), stderr=subprocess.DEVNULL, env={**os.environ, "SYSTEMD_LOG_TARGET": "console"}
        )
        wait_for("journald to listen", self._answers, interval=0.01)

    def _command(self) -> list[str]:
        journald = next((place for place in _PLACES if place.exists()), None)
        if journald is None:
            raise SetupMissingError("systemd-journald")
        if self.mode == "namespace":
            return [str(journald), self.namespace]
        script = (
            "mkdir -p /run/systemd/journal /run/log /var/log/journal &&"
            f" mount --bind {self.run} /run/systemd/journal &&"
            f" mount --bind {self._root}/runlog /run/log &&"
            f" mount --bind {self.directory} /var/log/journal &&"
            f" touch /etc/systemd/journald.conf && mount --bind {self._settings_file} /etc/systemd/journald.conf &&"
            f" exec {journald}"
        )
        return ["unshare", "-m", "--propagation", "private", "sh", "-c", script]

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(self.run / "stdout"))
            except OSError:
                return False
        return True

    def stream(self, unit: str = "llama-server.service", identifier: str = "llama-server") -> socket.socket:
        """A connected standard output of `unit`: journald believes the unit's name from root in the root cgroup."""
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._streams.append(stream)
        stream.connect(str(self.run / "stdout"))
        stream.shutdown(socket.SHUT_RD)
        stream.sendall(f"{identifier}\n{unit}\n6\n0\n0\n0\n0\n".encode())
        # Lines that arrive while the connection is being accepted may lack their unit, which nothing outside shows.
        time.sleep(0.1)
        return stream

    def write_from_another_process(self, unit: str, text: str) -> None:
        """Write a line of another unit: journald remembers one unit for each process."""
        script = (
            "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
            "s.sendall(f'x\\n{sys.argv[2]}\\n6\\n0\\n0\\n0\\n0\\n'.encode()); time.sleep(0.1); "
            "s.sendall(sys.argv[3].encode() + b'\\n'); time.sleep(0.1)"
        )
        command = [sys.executable, "-c", script, str(self.run / "stdout"), unit, text]
        subprocess.run(command, check=True, timeout=60)

    def send(self, **fields: str | bytes) -> None:
        """Send one entry by the native protocol; its trusted fields are those of this process."""
        data = b""
        for name, value in fields.items():
            raw = value if isinstance(value, bytes) else value.encode()
            data += name.encode() + b"\n" + len(raw).to_bytes(8, "little") + raw + b"\n"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as native:
            native.sendto(data, str(self.run / "socket"))

    def rotate(self) -> None:
        """Have journald start new files (as `journalctl --rotate`)."""
        self._running().send_signal(signal.SIGUSR2)

    def journalctl(self, *arguments: str) -> str:
        """What journalctl says within journald's own view of the files (private mode)."""
        command = ["nsenter", "-m", "-t", str(self._running().pid), "journalctl", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    def kill(self) -> None:
        """End journald as a crash would."""
        self._running().kill()
        self._running().wait(10)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process
