"""The committed rule files are what the code says, for Prometheus and for its operator, and promtool accepts them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from kvexporter.rules.__main__ import main
from kvexporter.rules.files import files
from kvexporter.rules.groups import ALERTS, GROUPS
from tests.support.paths import ROOT
from tests.support.prometheus import program

FOLDER = ROOT / "alerts"
RULE_FILES = [f"{group.name}.yaml" for group in GROUPS]


@pytest.mark.parametrize("name", [*RULE_FILES, "prometheusrule.yaml"])
def test_the_committed_file_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text() == files()[name], "run: python -m kvexporter.rules"


def test_there_is_no_file_that_nothing_makes() -> None:
    assert {path.name for path in FOLDER.glob("*.yaml")} == {*files(), "alertmanager.yaml"}


def test_the_files_are_written_where_asked(tmp_path: Path) -> None:
    main([str(tmp_path / "rules")])
    assert {path.name for path in (tmp_path / "rules").iterdir()} == set(files())


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    command = [program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", *RULE_FILES]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_operators_rules_are_those_of_the_files() -> None:
    operator = yaml.safe_load((FOLDER / "prometheusrule.yaml").read_text())
    assert (operator["apiVersion"], operator["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    groups = [yaml.safe_load((FOLDER / name).read_text())["groups"] for name in RULE_FILES]
    assert operator["spec"]["groups"] == [group for found in groups for group in found]


def test_every_alert_is_in_a_file_with_all_that_it_needs() -> None:
    rules = [
        rule
        for name in RULE_FILES
        for group in yaml.safe_load((FOLDER / name).read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert [rule["alert"] for rule in rules] == [alert.name for alert in ALERTS]
    for rule in rules:
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url", "dashboard_url"}
        assert rule["labels"]["severity"] in ("page", "warning", "info")
        assert rule["annotations"]["runbook_url"].endswith(f"/{rule['alert']}.md")
        # A value in a label would make a new alert of each value.
        assert not any("{{" in value for value in rule["labels"].values())
        assert "{{" not in rule["annotations"]["runbook_url"]
