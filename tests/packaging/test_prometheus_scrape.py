"""The scrape example is a configuration of Prometheus, with all rules and the job's name that they ask for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import yaml

from kvexporter.options import DEFAULT_PORT
from tests.support.paths import ROOT
from tests.support.prometheus import program

EXAMPLE = ROOT / "packaging" / "prometheus-scrape.yml"
FOLDER = "/etc/prometheus/kvexporter/"


def test_prometheus_accepts_it_with_the_shipped_rules(tmp_path: Path) -> None:
    for file in (ROOT / "alerts").glob("*.yaml"):
        shutil.copy(file, tmp_path)
    path = tmp_path / "prometheus.yml"
    path.write_text(EXAMPLE.read_text().replace(FOLDER, f"{tmp_path}/"))
    command = [program("promtool"), "check", "config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_names_every_rule_file() -> None:
    others = {"alertmanager.yaml", "prometheusrule.yaml"}
    shipped = {file.name for file in (ROOT / "alerts").glob("*.yaml")} - others
    assert {name.removeprefix(FOLDER) for name in yaml.safe_load(EXAMPLE.read_text())["rule_files"]} == shipped


def test_the_job_has_the_name_and_the_target_that_the_alerts_and_the_exporter_have() -> None:
    (job,) = yaml.safe_load(EXAMPLE.read_text())["scrape_configs"]
    assert f'up{{job="{job["job_name"]}"}}' in (ROOT / "alerts" / "exporter.yaml").read_text()
    assert job["static_configs"] == [{"targets": [f"127.0.0.1:{DEFAULT_PORT}"]}]
