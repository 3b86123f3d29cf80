"""Prometheus, Alertmanager and Grafana are given the shipped files, adapted to the demonstration only."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from kvexporter.demo import monitoring, shipped
from kvexporter.demo.ending import Ending
from kvexporter.demo.household import Household
from kvexporter.demo.messages import MessageReceiver
from kvexporter.demo.monitoring import Monitoring
from tests.support.paths import ROOT, wait_for
from tests.support.prometheus import program


def wanted() -> set[str]:
    """All shipped files that the demonstration needs, relative to their folder."""
    folder = shipped.shipped_folder()
    files = [*shipped.rule_files(folder), shipped.alertmanager_file(folder), *shipped.dashboard_files(folder)]
    return {str(path.relative_to(folder)) for path in [*files, shipped.provisioning_file(folder)]}


def test_a_checkout_has_its_own_files() -> None:
    assert shipped.shipped_folder() == ROOT


def test_all_shipped_rules_and_dashboards_are_used() -> None:
    there = {f"alerts/{path.name}" for path in (ROOT / "alerts").glob("*.yaml")} - {"alerts/prometheusrule.yaml"}
    there |= {f"dashboards/{path.name}" for path in (ROOT / "dashboards").glob("*.json")}
    assert wanted() == there | {"dashboards/provisioning.yaml"}


def test_an_installed_package_has_them_in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = wanted()
    package = tmp_path / "site-packages" / "kvexporter"
    monkeypatch.setattr("kvexporter.__file__", str(package / "__init__.py"))
    with pytest.raises(shipped.NotShippedError, match="install kvexporter anew"):
        shipped.shipped_folder()
    for name in names:
        (package / "shipped" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, package / "shipped" / name)
    assert shipped.shipped_folder() == package / "shipped"


def test_the_package_is_built_with_them() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    included = wheel["force-include"]
    # Each file by its name, or its whole folder.
    places = {name: included.get(name, f"{included.get(name.split('/')[0])}/{name.split('/')[1]}") for name in wanted()}
    assert places == {name: f"kvexporter/shipped/{name}" for name in wanted()}


def test_alertmanager_takes_the_shipped_routes_with_the_demonstration_as_every_receiver(tmp_path: Path) -> None:
    shipped_text = (ROOT / "alerts" / "alertmanager.yaml").read_text()
    text = monitoring.adapted_alertmanager(shipped_text, 12345)
    config, original = yaml.safe_load(text), yaml.safe_load(shipped_text)
    assert {**config, "receivers": None} == {**original, "receivers": None}
    assert [receiver["name"] for receiver in config["receivers"]] == [one["name"] for one in original["receivers"]]
    urls = [hook["url"] for receiver in config["receivers"] for hook in receiver["webhook_configs"]]
    assert all(url.startswith("http://127.0.0.1:12345/") for url in urls)
    path = tmp_path / "alertmanager.yml"
    path.write_text(text)
    checked = subprocess.run([program("amtool"), "check-config", path], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("alertmanager", [None, 12346])
def test_prometheus_takes_the_shipped_rules(tmp_path: Path, alertmanager: int | None) -> None:
    path = tmp_path / "prometheus.yml"
    path.write_text(monitoring.prometheus_config(12345, shipped.rule_files(ROOT), alertmanager))
    checked = subprocess.run(
        [program("promtool"), "check", "config", path], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    # KvexporterDown asks for this name.
    assert yaml.safe_load(path.read_text())["scrape_configs"][0]["job_name"] == "kvexporter"


def test_grafana_is_given_the_shipped_dashboards_and_keeps_to_its_folder(tmp_path: Path) -> None:
    monitoring.write_grafana_provisioning(tmp_path, ROOT, 9090)
    for path in shipped.dashboard_files(ROOT):
        assert (tmp_path / "dashboards" / path.name).read_bytes() == path.read_bytes()
    (provider,) = yaml.safe_load((tmp_path / "provisioning/dashboards/kvexporter.yaml").read_text())["providers"]
    assert provider["options"]["path"] == str(tmp_path / "dashboards")
    (source,) = yaml.safe_load((tmp_path / "provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    assert (source["type"], source["url"], source["isDefault"]) == ("prometheus", "http://127.0.0.1:9090", True)
    environment = monitoring.grafana_environment(tmp_path, 3000)
    paths = [value for name, value in environment.items() if name.startswith("GF_PATHS_")]
    assert len(paths) == 4
    assert all(Path(path).is_relative_to(tmp_path) for path in paths)
    assert environment["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"


class FakeGrafana:
    """Stands in for a Grafana, which Debian does not have: notes how it was started, and answers on its port."""

    SCRIPT = """#!/usr/bin/env python3
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
with open(os.environ["GF_PATHS_PROVISIONING"] + "/started.json", "w") as file:
    json.dump(sys.argv[1:], file)
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
HTTPServer((os.environ["GF_SERVER_HTTP_ADDR"], int(os.environ["GF_SERVER_HTTP_PORT"])), Handler).serve_forever()
"""

    def __init__(self, folder: Path, name: str) -> None:
        self.program = folder / "bin" / name
        self.home = folder / "home"
        (self.home / "conf").mkdir(parents=True)
        (self.home / "conf" / "defaults.ini").touch()
        self.program.parent.mkdir()
        self.program.write_text(self.SCRIPT)
        self.program.chmod(0o755)


@pytest.mark.parametrize(("name", "options"), [("grafana", ["server"]), ("grafana-server", [])])
def test_what_is_installed_is_started_and_what_is_missing_is_said_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: list[str]
) -> None:
    fake = FakeGrafana(tmp_path, name)
    monkeypatch.setattr(monitoring, "GRAFANA_HOMES", (fake.home,))
    monkeypatch.setattr(monitoring, "_found", lambda names: str(fake.program) if name in names else None)
    with Ending() as ending, Household() as household, ExitStack() as stack:
        lines = Monitoring(household, ending, 1).start(stack)
        started = json.loads((household.folder / "grafana" / "provisioning" / "started.json").read_text())
    assert started == [*options, "--homepath", str(fake.home)]
    assert lines[0] == "Alertmanager is not installed: apt-get install prometheus-alertmanager"
    assert lines[1] == "Prometheus is not installed: apt-get install prometheus"
    assert "Grafana, the shipped dashboards" in lines[2]


def test_one_that_does_not_start_is_said_with_its_last_words_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "prometheus"
    broken.write_text("#!/bin/sh\necho 'out of order' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(monitoring, "_found", lambda names: str(broken) if "prometheus" in names else None)
    with Ending() as ending, Household() as household, ExitStack() as stack:
        lines = Monitoring(household, ending, 1).start(stack)
    assert lines[1] == "Prometheus did not start:\nout of order"


def test_messages_are_said_in_one_line_each_and_nonsense_is_passed_over() -> None:
    alert: dict[str, Any] = {
        "status": "firing",
        "labels": {"alertname": "LlamaContextExceeded"},
        "annotations": {"summary": "agents: the pool ran out"},
    }
    with MessageReceiver() as receiver:
        url = f"http://127.0.0.1:{receiver.port}/page"
        bodies: tuple[Any, ...] = ({"alerts": [alert, {**alert, "status": "resolved"}]}, {"alerts": [{}]}, [], "x")
        for body in bodies:
            assert httpx.post(url, json=body, trust_env=False).status_code == 200
        lines = wait_for("the messages", receiver.news)
        assert receiver.news() == []
    assert lines == [
        "  @ Alertmanager to 'page': LlamaContextExceeded: agents: the pool ran out",
        "  @ Alertmanager to 'page': LlamaContextExceeded is over: agents: the pool ran out",
    ]
