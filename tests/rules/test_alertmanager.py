"""The example configuration of Alertmanager: accepted, routed as it says, and silencing what it should and no more."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
import yaml

from kvexporter.rules.groups import ALERTS
from kvexporter.rules.pool import POOL
from kvexporter.rules.rule import AlertRule
from tests.support.alertmanager import Alertmanager
from tests.support.paths import ROOT, wait_for
from tests.support.prometheus import program

CONFIG = ROOT / "alerts" / "alertmanager.yaml"
HERE = {"job": "kvexporter", "instance": "gpu1:9889", "server": "main"}
ELSEWHERE = {"job": "kvexporter", "instance": "gpu2:9889", "server": "main"}
OTHER = {"job": "kvexporter", "instance": "gpu1:9889", "server": "other"}
CONTEXT_ERRORS = {"LlamaContextExceeded", "LlamaRequestTooLong"}
"""They tell of requests that died, whatever became of the server since."""


def amtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [program("amtool"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_amtool_accepts_it() -> None:
    done = amtool("check-config", str(CONFIG))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_each_alert_goes_to_the_receiver_of_its_severity(alert: AlertRule) -> None:
    labels = [f"{name}={value}" for name, value in {"alertname": alert.name, **alert.rule_labels, **HERE}.items()]
    config = f"--config.file={CONFIG}"
    done = amtool("config", "routes", "test", config, f"--verify.receivers={alert.severity}", *labels)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_alert_of_something_else_still_reaches_somebody() -> None:
    done = amtool("config", "routes", "test", f"--config.file={CONFIG}", "alertname=DiskFull", "severity=critical")
    assert done.stdout.strip() == "warning"


def test_everything_is_grouped_by_server_and_pages_wait_no_longer_than_seconds() -> None:
    route = yaml.safe_load(CONFIG.read_text())["route"]
    assert route["group_by"] == ["job", "instance", "server"]
    assert not any("group_by" in below for below in route["routes"])
    assert route["routes"][0]["matchers"] == ['severity = "page"']
    assert route["routes"][0]["group_wait"] == "5s"


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    with Alertmanager(tmp_path_factory.mktemp("alertmanager"), config=CONFIG) as running:
        yield running


_numbers = itertools.count()


def silenced(alertmanager: Alertmanager, *alerts: tuple[str, dict[str, str]]) -> set[tuple[str, str]]:
    """Post alerts at once, and give the name and server (else instance) of those that another one silences."""
    # Alertmanager takes in the sources of inhibitions one after the other, a moment later. Once the last one posted
    # silences what it should, all have been taken in.
    last = {**ELSEWHERE, "server": f"last-{next(_numbers)}"}
    alerts = (("LlamaServerDown", last), *alerts, ("LlamaServerCrashLooping", {**last, "code": "1"}))
    severities = {alert.name: alert.rule_labels for alert in ALERTS}
    end = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    posted = [{"labels": {"alertname": name, **severities[name], **labels}, "endsAt": end} for name, labels in alerts]
    url = f"{alertmanager.url}/api/v2/alerts"
    httpx.post(url, json=posted, timeout=10, trust_env=False).raise_for_status()

    def found() -> set[tuple[str, str]] | None:
        all_alerts = httpx.get(url, timeout=10, trust_env=False).raise_for_status().json()
        names = {
            (alert["labels"]["alertname"], alert["labels"].get("server", alert["labels"].get("instance", "")))
            for alert in all_alerts
            if alert["status"]["inhibitedBy"]
        }
        return names if ("LlamaServerDown", last["server"]) in names else None

    try:
        return wait_for("Alertmanager to take in all alerts", found) - {("LlamaServerDown", last["server"])}
    finally:
        over = [{**alert, "endsAt": datetime.now(UTC).isoformat()} for alert in posted]
        httpx.post(url, json=over, timeout=10, trust_env=False).raise_for_status()


@pytest.mark.parametrize("gone", [("LlamaServerDown", HERE), ("LlamaServerCrashLooping", {**HERE, "code": "139"})])
def test_a_server_that_is_gone_silences_what_needs_a_server_and_nobody_elses(
    alertmanager: Alertmanager, gone: tuple[str, dict[str, str]]
) -> None:
    pool = [alert.name for alert in POOL.alerts]
    found = silenced(alertmanager, gone, *((name, HERE) for name in pool), *((name, OTHER) for name in pool))
    # The other server's warnings are silenced by its own page; that is another rule.
    assert {name for name, server in found if server == "main"} == set(pool) - CONTEXT_ERRORS
    assert not {*CONTEXT_ERRORS, "LlamaPoolAlmostFull", "LlamaSlotStalled"} & {
        name for name, server in found if server == "other"
    }


@pytest.mark.parametrize("name", sorted(CONTEXT_ERRORS))
def test_requests_that_died_before_a_server_went_down_are_told(alertmanager: Alertmanager, name: str) -> None:
    alerts = [(name, HERE), ("LlamaServerDown", HERE), ("LlamaServerOutOfMemory", HERE)]
    assert silenced(alertmanager, *alerts) == set()


def test_a_page_silences_the_warnings_of_the_same_pool_only(alertmanager: Alertmanager) -> None:
    found = silenced(
        alertmanager,
        ("LlamaPoolAlmostFull", HERE),
        ("LlamaPoolFillingUp", HERE),
        ("LlamaPoolPressure", HERE),
        ("LlamaPoolOvercommitted", HERE),
        ("LlamaSlotStalled", {**HERE, "slot": "1"}),
        ("LlamaGenerationSlow", HERE),
        ("LlamaPoolFillingUp", OTHER),
        ("LlamaPoolFillingUp", ELSEWHERE),
    )
    assert found == {("LlamaPoolFillingUp", "main"), ("LlamaPoolPressure", "main")}


def test_the_page_of_dead_requests_silences_its_warning_and_not_the_other_page(alertmanager: Alertmanager) -> None:
    found = silenced(
        alertmanager, ("LlamaContextExceeded", HERE), ("LlamaPoolFillingUp", HERE), ("LlamaPoolAlmostFull", HERE)
    )
    assert found == {("LlamaPoolFillingUp", "main")}


def test_a_crash_loop_silences_that_the_server_is_down(alertmanager: Alertmanager) -> None:
    found = silenced(
        alertmanager,
        ("LlamaServerCrashLooping", {**HERE, "code": "127"}),
        ("LlamaServerDown", HERE),
        ("LlamaServerLoadingTooLong", HERE),
        ("LlamaServerDown", OTHER),
    )
    assert found == {("LlamaServerDown", "main"), ("LlamaServerLoadingTooLong", "main")}


def test_an_exporter_that_is_down_silences_only_what_it_said_of_itself(alertmanager: Alertmanager) -> None:
    here = {"job": "kvexporter", "instance": "gpu1:9889"}
    there = {"job": "kvexporter", "instance": "gpu2:9889"}
    found = silenced(
        alertmanager,
        ("KvexporterDown", here),
        ("KvexporterStoreFailing", here),
        ("KvexporterStoreFailing", there),
        ("LlamaUnifiedMemoryLow", there),
        ("LlamaPoolFillingUp", HERE),
    )
    assert found == {("KvexporterStoreFailing", "gpu1:9889")}


def test_labels_that_are_missing_on_both_sides_silence_nothing(alertmanager: Alertmanager) -> None:
    job = {"job": "kvexporter"}
    found = silenced(
        alertmanager,
        ("KvexporterDown", job),
        ("KvexporterJournalNotRead", job),
        ("LlamaPoolAlmostFull", job),
        ("LlamaPoolFillingUp", job),
        ("LlamaServerDown", {"job": "kvexporter", "instance": "gpu1:9889"}),
        ("LlamaSlotStalled", {"job": "kvexporter", "instance": "gpu1:9889", "slot": "0"}),
    )
    assert found == set()


def test_every_alert_that_an_inhibition_names_exists() -> None:
    names = [alert.name for alert in ALERTS]
    for rule in yaml.safe_load(CONFIG.read_text())["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            label, kind, value = re.fullmatch(r'(\w+) (=~?) "(.+)"', matcher).groups()  # type: ignore[union-attr]
            if label == "alertname":
                for part in value.split("|"):
                    assert any(re.fullmatch(part, name) if kind == "=~" else part == name for name in names), part


def test_the_placeholders_are_said_to_be_such() -> None:
    lines = CONFIG.read_text().splitlines()
    assert all(line.endswith("# placeholder") for line in lines if "url: http" in line)
