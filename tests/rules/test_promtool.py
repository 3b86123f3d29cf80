"""promtool's unit tests of the rules pass, and there is a whole one for every alert: before, while, after."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from kvexporter.rules.groups import ALERTS, GROUPS
from kvexporter.rules.rule import AlertRule
from tests.support.paths import ROOT
from tests.support.prometheus import program

FOLDER = ROOT / "alerts" / "tests"
NAMES = [group.name for group in GROUPS if group.alerts]

_UNITS = {"h": 3600, "m": 60, "s": 1}


@pytest.mark.parametrize("name", NAMES)
def test_the_rules_do_what_their_unit_tests_say(name: str) -> None:
    command = [program("promtool"), "test", "rules", f"{name}.yaml"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_notices_a_wrong_number(tmp_path: Path) -> None:
    text = (FOLDER / "pool.yaml").read_text()
    assert "Slot 0 holds most, 159069 tokens." in text
    wrong = tmp_path / "tests" / "wrong.yaml"
    wrong.parent.mkdir()
    wrong.write_text(text.replace("Slot 0 holds most, 159069 tokens.", "Slot 0 holds most, 159068 tokens."))
    shutil.copy(FOLDER.parent / "pool.yaml", tmp_path)
    command = [program("promtool"), "test", "rules", wrong.name]
    done = subprocess.run(command, cwd=wrong.parent, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "159069" in done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_is_tested_one_step_before_while_it_fires_and_after(alert: AlertRule) -> None:
    """In one and the same story: nothing one evaluation before it first fires, and nothing later on."""
    for name in NAMES:
        suite = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
        step = _seconds(suite["evaluation_interval"])
        for story in suite["tests"]:
            checks = [check for check in story["alert_rule_test"] if check["alertname"] == alert.name]
            firing = [_seconds(check["eval_time"]) for check in checks if check.get("exp_alerts")]
            silent = [_seconds(check["eval_time"]) for check in checks if not check.get("exp_alerts")]
            # Where the story has a sample less often than rules are evaluated, its step is what counts.
            steps = {step, _seconds(story["interval"])}
            if firing and max(silent, default=0) > max(firing) and {min(firing) - one for one in steps} & set(silent):
                return
    pytest.fail(f"no story tests {alert.name} one step before, while and after it fires")


def test_every_expected_alert_names_all_its_labels_and_annotations() -> None:
    for name in NAMES:
        for story in yaml.safe_load((FOLDER / f"{name}.yaml").read_text())["tests"]:
            for check in story["alert_rule_test"]:
                for expected in check.get("exp_alerts") or []:
                    assert {"severity", "job"} <= set(expected["exp_labels"])
                    assert set(expected["exp_annotations"]) == {
                        "summary",
                        "description",
                        "runbook_url",
                        "dashboard_url",
                    }


def _seconds(text: str) -> int:
    parts = re.findall(r"(\d+)([hms])", text)
    assert "".join(number + unit for number, unit in parts) == text
    return sum(int(number) * _UNITS[unit] for number, unit in parts)
