"""Prometheus, Alertmanager and Grafana with the shipped files, as far as they are installed."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml

from kvexporter.demo import shipped
from kvexporter.demo.ending import Ending
from kvexporter.demo.household import Child, Household
from kvexporter.demo.messages import MessageReceiver
from kvexporter.demo.ports import free_ports

START_SECONDS = 60.0
SCRAPE_SECONDS = 2
"""Between two scrapes, and two looks at the rules: the stand-ins' time runs faster too."""

PROMETHEUS = ("prometheus",)
ALERTMANAGER = ("prometheus-alertmanager", "alertmanager")
GRAFANA = ("grafana", "grafana-server")
GRAFANA_HOMES = (Path("/usr/share/grafana"), Path("/opt/grafana"), Path("/usr/local/share/grafana"))

HOW_TO = {
    "Prometheus": "apt-get install prometheus",
    "Alertmanager": "apt-get install prometheus-alertmanager",
    "Grafana": "not in Debian: https://grafana.com/docs/grafana/latest/setup-grafana/installation/debian/",
}


@dataclass
class _Started:
    name: str
    url: str
    child: Child


class Monitoring:
    """What was started, on free ports of 127.0.0.1; it ends with the household."""

    def __init__(self, household: Household, ending: Ending, exporter_port: int) -> None:
        self._household = household
        self._ending = ending
        self._exporter_port = exporter_port
        self._running: list[_Started] = []
        self._receiver: MessageReceiver | None = None

    def start(self, stack: ExitStack) -> list[str]:
        """Start what is installed; the lines to say about it. What is missing or fails is said, and does without."""
        try:
            files = shipped.shipped_folder()
        except shipped.NotShippedError as error:
            return [f"Prometheus was not started: {error}"]
        prometheus, alertmanager, grafana = free_ports(3)
        lines = []
        told: int | None = None
        if program := _found(ALERTMANAGER):
            self._receiver = stack.enter_context(MessageReceiver())
            lines.append(self._alertmanager(program, files, alertmanager, self._receiver.port))
            told = alertmanager
        else:
            lines.append(_missing("Alertmanager"))
        if program := _found(PROMETHEUS):
            lines.append(self._prometheus(program, files, prometheus, told))
        else:
            lines.append(_missing("Prometheus"))
        if (program := _found(GRAFANA)) and (home := _grafana_home()):
            lines.append(self._grafana(program, home, files, grafana, prometheus))
        else:
            lines.append(_missing("Grafana"))
        return lines

    def check(self) -> list[str]:
        """The news: messages that Alertmanager sent, and what has ended by itself."""
        lines = self._receiver.news() if self._receiver is not None else []
        for one in [one for one in self._running if one.child.ended]:
            self._running.remove(one)
            lines.append(f"{one.name} ended by itself:\n{one.child.last_words()}")
        return lines

    def _alertmanager(self, program: str, files: Path, port: int, receiver_port: int) -> str:
        folder = self._folder("alertmanager")
        config = folder / "alertmanager.yml"
        config.write_text(adapted_alertmanager(shipped.alertmanager_file(files).read_text(), receiver_port))
        command = [
            program,
            f"--config.file={config}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ]
        return self._spawn("Alertmanager", command, port, "/-/ready", "the shipped routes; its messages are said here")

    def _prometheus(self, program: str, files: Path, port: int, alertmanager: int | None) -> str:
        folder = self._folder("prometheus")
        config = folder / "prometheus.yml"
        config.write_text(prometheus_config(self._exporter_port, shipped.rule_files(files), alertmanager))
        command = [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--web.external-url=http://127.0.0.1:{port}",
        ]
        return self._spawn("Prometheus", command, port, "/-/ready", "the shipped rules: /alerts")

    def _grafana(self, program: str, home: Path, files: Path, port: int, prometheus: int) -> str:
        folder = self._folder("grafana")
        write_grafana_provisioning(folder, files, prometheus)
        command = [program, *(["server"] if Path(program).name == "grafana" else []), "--homepath", str(home)]
        return self._spawn(
            "Grafana", command, port, "/api/health", "the shipped dashboards, nobody needs to log in",
            grafana_environment(folder, port),
        )  # fmt: skip

    def _folder(self, name: str) -> Path:
        folder = self._household.folder / name
        folder.mkdir()
        return folder

    def _spawn(
        self, name: str, command: list[str], port: int, ready: str, what: str, environment: dict[str, str] | None = None
    ) -> str:
        url = f"http://127.0.0.1:{port}"
        try:
            child = self._household.spawn(name.lower(), command, environment=environment)
        except OSError as error:
            return f"{name} could not be started: {error}"
        deadline = time.monotonic() + START_SECONDS
        while not _answers(url + ready):
            if child.ended or time.monotonic() > deadline:
                if not child.ended:
                    child.process.terminate()
                return f"{name} did not start:\n{child.last_words()}"
            self._ending.wait(0.1)
        self._running.append(_Started(name, url, child))
        return f"{url}  {name}, {what}"


def prometheus_config(exporter_port: int, rules: list[Path], alertmanager_port: int | None) -> str:
    """Prometheus' configuration: the shipped rules as they are, looked at more often."""
    often = f"{SCRAPE_SECONDS}s"
    config = {
        "global": {"scrape_interval": often, "scrape_timeout": often, "evaluation_interval": often},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": "kvexporter", "static_configs": [{"targets": [f"127.0.0.1:{exporter_port}"]}]}],
    }
    if alertmanager_port is not None:
        targets = [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]
        config["alerting"] = {"alertmanagers": [{"static_configs": targets}]}
    return yaml.safe_dump(config, sort_keys=False)


def adapted_alertmanager(text: str, receiver_port: int) -> str:
    """The shipped example with this demonstration in place of its receivers."""
    config = yaml.safe_load(text)
    config["receivers"] = [
        {
            "name": receiver["name"],
            "webhook_configs": [{"url": f"http://127.0.0.1:{receiver_port}/{receiver['name']}", "send_resolved": True}],
        }
        for receiver in config["receivers"]
    ]
    return yaml.safe_dump(config, sort_keys=False)


def write_grafana_provisioning(folder: Path, files: Path, prometheus_port: int) -> None:
    """The data source, and the shipped dashboards provisioned as their own file has it, in a folder of Grafana's."""
    dashboards = folder / "dashboards"
    provisioning = folder / "provisioning"
    for path in (dashboards, provisioning / "datasources", provisioning / "dashboards"):
        path.mkdir(parents=True)
    for path in shipped.dashboard_files(files):
        shutil.copy(path, dashboards)
    provider = yaml.safe_load(shipped.provisioning_file(files).read_text())
    provider["providers"][0]["options"]["path"] = str(dashboards)
    (provisioning / "dashboards" / "kvexporter.yaml").write_text(yaml.safe_dump(provider))
    source = {
        "apiVersion": 1,
        "datasources": [
            {
                "name": "Prometheus",
                "type": "prometheus",
                "url": f"http://127.0.0.1:{prometheus_port}",
                "access": "proxy",
                "isDefault": True,
                "jsonData": {"timeInterval": f"{SCRAPE_SECONDS}s"},
            }
        ],
    }
    (provisioning / "datasources" / "prometheus.yaml").write_text(yaml.safe_dump(source))


def grafana_environment(folder: Path, port: int) -> dict[str, str]:
    """What makes Grafana keep to its folder and port, let everybody in, and talk to nobody else."""
    return {
        "GF_PATHS_DATA": str(folder / "data"),
        "GF_PATHS_LOGS": str(folder / "logs"),
        "GF_PATHS_PLUGINS": str(folder / "plugins"),
        "GF_PATHS_PROVISIONING": str(folder / "provisioning"),
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_PLUGINS_PREINSTALL_DISABLED": "true",
    }


def _found(names: tuple[str, ...]) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


def _grafana_home() -> Path | None:
    return next((home for home in GRAFANA_HOMES if (home / "conf" / "defaults.ini").is_file()), None)


def _missing(name: str) -> str:
    return f"{name} is not installed: {HOW_TO[name]}"


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
