"""Debian's real Alertmanager and amtool."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import yaml

from tests.support.paths import free_port, wait_for
from tests.support.prometheus import program
from tests.support.scrape import Scrape

PROGRAM = "prometheus-alertmanager"


class Alertmanager:
    """An Alertmanager with its own data folder; a context manager.

    `config` is its configuration; without one everything goes at once, and in one group for each server, to `webhook`.
    `web` is its web configuration (TLS, users); `client` are httpx options to reach it then.
    """

    def __init__(
        self,
        directory: Path,
        webhook: str | None = None,
        config: Path | None = None,
        web: Mapping[str, Any] | None = None,
        client: Mapping[str, Any] | None = None,
        port: int | None = None,
    ) -> None:
        self.directory = directory
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"{'https' if web else 'http'}://{self.address}"
        self._config = config
        self._webhook = webhook
        self._web = web
        self._client = dict(client or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Alertmanager:
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self._config
        if config is None:
            config = self.directory / "alertmanager.yml"
            config.write_text(yaml.safe_dump(quick_config(self._webhook)))
        command = [
            program(PROGRAM),
            f"--config.file={config}",
            f"--storage.path={self.directory / 'data'}",
            f"--web.listen-address={self.address}",
            "--cluster.listen-address=",
        ]
        if self._web is not None:
            web = self.directory / "web.yml"
            web.write_text(yaml.safe_dump(dict(self._web)))
            command.append(f"--web.config.file={web}")
        log = self.directory / "alertmanager.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_for("Alertmanager to be ready", self._ready, 60)
        except BaseException as error:
            self.__exit__(None, None, None)
            raise AssertionError(f"Alertmanager did not start:\n{log.read_text()}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(20)
            self._process = None

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError("it ended")
        try:
            return self._get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def _get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=10, trust_env=False, **self._client)

    def alerts(self, name: str | None = None) -> list[dict[str, Any]]:
        """The alerts that are on, as its API gives them; those of one name."""
        found: list[dict[str, Any]] = self._get("/api/v2/alerts").raise_for_status().json()
        return [alert for alert in found if name is None or alert["labels"]["alertname"] == name]

    def metric(self, name: str, **labels: str) -> float:
        """The sum of one of its own metrics."""
        return sum(value for _, value in Scrape(self._get("/metrics").text).all(name, **labels))

    def wait_alert(self, name: str, deadline: float = 30.0) -> dict[str, Any]:
        """Wait until an alert of this name is on, and give it."""
        return wait_for(f"{name} in Alertmanager", lambda: next(iter(self.alerts(name)), None), deadline)

    def wait_end(self, name: str, deadline: float = 30.0) -> None:
        """Wait until no alert of this name is on."""
        wait_for(f"{name} to end in Alertmanager", lambda: not self.alerts(name), deadline)


def quick_config(webhook: str | None) -> dict[str, Any]:
    """A configuration that sends everything at once, ends included."""
    receiver: dict[str, Any] = {"name": "all"}
    if webhook is not None:
        receiver["webhook_configs"] = [{"url": webhook, "send_resolved": True}]
    route = {
        "receiver": "all",
        "group_by": ["server", "alertname"],
        "group_wait": "1s",
        "group_interval": "1s",
        "repeat_interval": "1h",
    }
    return {"route": route, "receivers": [receiver]}
