"""The rules in a real Prometheus that scrapes a whole exposition: evaluated, and texts expanded, without error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from kvexporter.rules.groups import ALERTS, GROUPS
from kvexporter.rules.rule import AlertRule
from kvexporter.rules.words import NUMBERS, placeholders, query
from tests.support.paths import ROOT, wait_for
from tests.support.prometheus import Prometheus

RULES = tuple(ROOT / "alerts" / f"{group.name}.yaml" for group in GROUPS)
EXPOSITION = (ROOT / "tests" / "metrics" / "full.prom").read_bytes()


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.end_headers()
        self.wfile.write(EXPOSITION)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name upstream
        """Say nothing."""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"127.0.0.1:{server.server_address[1]}"
        with Prometheus(tmp_path_factory.mktemp("prometheus"), {"kvexporter": address}, rules=RULES) as running:
            wait_for("a scrape", lambda: running.query('up{job="kvexporter"} == 1'))
            yield running
    finally:
        server.shutdown()
        thread.join(30)
        server.server_close()


def rules(prometheus: Prometheus) -> list[dict[str, Any]]:
    reply = httpx.get(f"{prometheus.url}/api/v1/rules", timeout=30, trust_env=False).json()
    return [rule for group in reply["data"]["groups"] for rule in group["rules"]]


def test_every_rule_is_evaluated_without_error(prometheus: Prometheus) -> None:
    # Recording rules are evaluated once a minute, at a moment that hangs on the group's name.
    found = wait_for(
        "all rules to be evaluated",
        lambda: (all(rule["health"] != "unknown" for rule in rules(prometheus)) and rules(prometheus)) or None,
        120,
    )
    assert len(found) == sum(len(group.rules) for group in GROUPS)
    assert [(rule["name"], rule.get("lastError", "")) for rule in found if rule["health"] != "ok"] == []


def test_an_alert_of_the_real_thing_says_its_numbers(prometheus: Prometheus) -> None:
    def pending() -> dict[str, Any] | None:
        for rule in rules(prometheus):
            if rule["name"] == "LlamaPoolOvercommitted" and rule["alerts"]:
                return dict(rule["alerts"][0])
        return None

    alert = wait_for("LlamaPoolOvercommitted", pending)
    assert alert["labels"]["server"] == "main"
    lines = alert["annotations"]["description"].splitlines()
    assert "4 slots of 262144 tokens are 1048576 promised, and the pool has 262144." in lines


def test_no_text_that_is_shown_holds_a_templates_error(prometheus: Prometheus) -> None:
    wait_for("alerts", lambda: [rule for rule in rules(prometheus) if rule.get("alerts")])
    alerts = [alert for rule in rules(prometheus) for alert in rule.get("alerts", [])]
    shown = [text for alert in alerts for text in alert["annotations"].values()]
    assert shown
    assert not [text for text in shown if "error" in text or "{{" in text or "<no value>" in text]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_query_of_a_text_is_answered(prometheus: Prometheus, alert: AlertRule) -> None:
    instance = prometheus.query('up{job="kvexporter"}')[0][0]["instance"]
    labels = {"job": "kvexporter", "instance": instance, "server": "main", "slot": "0", "gpu": "0"}
    for name in placeholders((alert.summary, *alert.description)):
        if name in NUMBERS:
            assert len(prometheus.query(query(name, labels))) <= 1
