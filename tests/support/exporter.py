"""The real exporter as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import yaml

from tests.support.paths import free_port, wait_for
from tests.support.scrape import Scrape, scrape, wait_value


class Exporter:
    """`kvexporter run` with a configuration (None: no file, so it finds things by itself); a context manager.

    `module` is run in kvexporter's place. `stdin`: a descriptor for its standard input.
    """

    def __init__(
        self, config: dict[str, Any] | None, *options: str, module: str = "kvexporter", stdin: int = subprocess.DEVNULL
    ) -> None:
        self._stdin = stdin
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.address = f"127.0.0.1:{self.port}"
        self._folder = tempfile.TemporaryDirectory(prefix="kvexporter-test-")
        self.log_file = Path(self._folder.name) / "log"
        self.store_file = Path(self._folder.name) / "kvexporter.db"
        self._command = [sys.executable, "-m", module, "run", "--web.listen-address", self.address, *options]
        if config is not None:
            self.config_file = Path(self._folder.name) / "kvexporter.yml"
            self.config_file.write_text(yaml.safe_dump(config))
            self._command += ["--config.file", str(self.config_file)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Exporter:
        self.launch()
        try:
            self.wait_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def launch(self) -> None:
        """Start it, as at first or again after `kill` or `stop`, without waiting for it to be ready."""
        assert self._process is None
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=self._stdin,
                stdout=log,
                stderr=log,
                env={**os.environ, "STATE_DIRECTORY": self._folder.name},
            )

    def wait_ready(self, deadline: float = 30.0) -> None:
        """Wait until it says that it is ready."""
        try:
            wait_for("the exporter to be ready", self._ready, deadline)
        except BaseException as error:
            raise AssertionError(f"{error}; its log:\n{self.log()}") from error

    def kill(self) -> None:
        """End it as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(20)
        self._process = None

    def stop(self) -> int:
        """End it as systemd would; its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(20)
        finally:
            self._process = None

    def wait_end(self, deadline: float = 30.0) -> int:
        """Wait until it ends by itself; its exit status."""
        assert self._process is not None
        status = self._process.wait(deadline)
        self._process = None
        return status

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(20)
            self._process = None
        self._folder.cleanup()

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the exporter ended with exit status {self._process.returncode}")
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=10, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def scrape(self) -> Scrape:
        return scrape(self.url)

    def wait_value(self, expected: float, name: str, deadline: float = 30.0, **labels: str) -> Scrape:
        """Scrape until a series has a value, and give that scrape."""
        try:
            return wait_value(self.url, expected, name, deadline, **labels)
        except AssertionError as error:
            raise AssertionError(f"{error}; the exporter's log:\n{self.log()}") from None

    def wait_absent(self, name: str, deadline: float = 30.0, **labels: str) -> Scrape:
        """Scrape until a series is gone, and give that scrape."""

        def probe() -> Scrape | None:
            now = self.scrape()
            return None if now.all(name, **labels) else now

        return wait_for(f"{name}{labels} to disappear", probe, deadline, interval=0.1)
