"""Debian's real Prometheus and promtool."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import yaml

from tests.support.paths import SetupMissingError, free_port, wait_for


def program(name: str) -> str:
    """The path of one of Prometheus' programs."""
    path = shutil.which(name)
    if path is None:
        raise SetupMissingError(name)
    return path


def promtool_check_metrics(exposition: str) -> str:
    """What `promtool check metrics` finds in a text exposition: errors and lint, "" when it is clean."""
    done = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=exposition,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = done.stdout + done.stderr
    return found or (f"promtool: exit {done.returncode}" if done.returncode else "")


class Prometheus:
    """A Prometheus with its own data folder; use as a context manager.

    `targets` maps job names to addresses (host:port); `rules` are rule files; `scrape` is added to every job;
    `alertmanagers` are addresses (host:port); `options` are further ones of the program.
    """

    def __init__(
        self,
        directory: Path,
        targets: Mapping[str, str],
        scrape_interval: str = "1s",
        rules: tuple[Path, ...] = (),
        scrape: Mapping[str, Any] | None = None,
        alertmanagers: tuple[str, ...] = (),
        options: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        jobs = [
            {**(scrape or {}), "job_name": job, "static_configs": [{"targets": [address]}]}
            for job, address in targets.items()
        ]
        self._config = {
            "global": {
                "scrape_interval": scrape_interval,
                "scrape_timeout": scrape_interval,
                "evaluation_interval": "1s",
            },
            "rule_files": [str(rule) for rule in rules],
            "scrape_configs": jobs,
        }
        if alertmanagers:
            told = [{"static_configs": [{"targets": list(alertmanagers)}]}]
            self._config["alerting"] = {"alertmanagers": told}
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Prometheus:
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "prometheus.yml"
        config.write_text(yaml.safe_dump(self._config))
        log = self.directory / "prometheus.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self.directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    *self._options,
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_for("Prometheus to be ready", self._ready, 60)
        except BaseException as error:
            self.__exit__(None, None, None)
            raise AssertionError(f"Prometheus did not start:\n{log.read_text()}") from error
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
            return httpx.get(f"{self.url}/-/ready", timeout=5, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """An instant query: (labels, value) of each series."""
        result = self._api("/api/v1/query", query=expression)["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def value(self, expression: str) -> float | None:
        """The value of a query that gives one series; None when it gives none."""
        found = self.query(expression)
        assert len(found) <= 1, f"{expression} gives {len(found)} series"
        return found[0][1] if found else None

    def samples(self, selector: str, window: str = "10m") -> list[list[tuple[float, float]]]:
        """All raw samples of the last `window`: one list of (time, value) per series."""
        result = self._api("/api/v1/query", query=f"{selector}[{window}]")["result"]
        return [[(at, float(value)) for at, value in series["values"]] for series in result]

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are pending or firing, as its API gives them."""
        found: list[dict[str, Any]] = self._api("/api/v1/alerts")["alerts"]
        return found

    def _api(self, path: str, **parameters: str) -> dict[str, Any]:
        reply = httpx.get(self.url + path, params=parameters, timeout=30, trust_env=False).json()
        assert reply["status"] == "success", reply
        data: dict[str, Any] = reply["data"]
        return data
