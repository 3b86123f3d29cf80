"""What alerts are called and what they say: the rules' labels and words, with this server's numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvexporter.alerting.conditions import POOL_RULES, Held
from kvexporter.alerting.texts import alert_annotations, alert_labels, numbers
from kvexporter.rules.pool import CONTEXT_EXCEEDED, FILLING_UP
from kvexporter.rules.rule import AlertRule
from kvexporter.rules.words import LABELS, placeholders
from kvexporter.snapshot import PoolSnapshot
from tests.support.snapshots import FOUR_AGENTS, FULL, UNKNOWN

COMMON = {"job": "kvexporter", "instance": "gpu1:9889"}
AT = FOUR_AGENTS.ended + 5
LOW = PoolSnapshot(250000, 0, 0.95, 0.95, 0.97, demand_tokens=300000, demand_ratio=1.14, seconds_to_full=75.4)


def said(rule: AlertRule, server: object = FULL) -> dict[str, str]:
    incident = FOUR_AGENTS if rule is CONTEXT_EXCEEDED else None
    held = Held(rule, AT, incident)
    own = alert_labels(held, FULL, COMMON)
    return alert_annotations(held, server, own, AT, "thishost")  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", POOL_RULES, ids=lambda rule: rule.name)
def test_labels_are_those_of_the_rule(rule: AlertRule) -> None:
    found = alert_labels(Held(rule, AT), FULL, COMMON)
    assert found == {**COMMON, "server": "main", "alertname": rule.name, "severity": rule.severity, **rule.fixed}
    assert set(rule.labels) <= found.keys()


@pytest.mark.parametrize("rule", POOL_RULES, ids=lambda rule: rule.name)
def test_every_number_that_a_text_names_is_known_of_a_server_that_is_known_in_full(rule: AlertRule) -> None:
    server = replace(FULL, pool=replace(LOW, committed_tokens=1, committed_ratio=0.9))
    wanted = {name for name in placeholders((rule.summary, *rule.description)) if name not in LABELS}
    assert wanted <= numbers(server, FOUR_AGENTS, AT).keys()


def test_the_page_names_who_held_most_and_by_how_much_it_was_too_much() -> None:
    found = said(CONTEXT_EXCEEDED)
    assert found["summary"].startswith("main: ")
    # The four agents: slot 0 held 159,069 of 262,144, and together they were 719 over.
    for part in ("main on gpu1:9889", "last 10 minutes: 4.", "slot 0", "159069", "262144", "719"):
        assert part in found["description"], found["description"]


def test_a_warning_says_how_full_how_much_is_wanted_and_how_long_is_left() -> None:
    found = said(FILLING_UP, replace(FULL, pool=LOW))
    for part in ("95%", "114%", "1m 15s", "Slot 0", "131072"):
        assert part in found["description"], found["description"]


def test_what_is_unknown_is_left_out_and_no_empty_place_is_shown() -> None:
    found = said(FILLING_UP, UNKNOWN)
    assert "{" not in found["description"] + found["summary"]
    assert "hold" not in found["description"].partition("First:")[0]
    assert found["summary"] == "main: the KV pool is on its way to overflow"


def test_links_lead_to_the_runbook_and_to_this_server_s_dashboard() -> None:
    found = said(FILLING_UP)
    assert found["runbook_url"].endswith("/docs/runbooks/LlamaPoolFillingUp.md")
    assert found["dashboard_url"] == "/d/kvexporter-pool?var-job=kvexporter&var-instance=gpu1%3A9889&var-server=main"


def test_without_an_instance_label_the_text_names_the_host() -> None:
    held = Held(FILLING_UP, AT)
    found = alert_annotations(held, FULL, alert_labels(held, FULL, {}), AT, "thishost")
    assert "main on thishost" in found["description"]


def test_a_name_that_metrics_show_cut_is_cut_the_same_way() -> None:
    long = replace(FULL, name="x" * 300)
    found = alert_labels(Held(FILLING_UP, AT), long, COMMON)["server"]
    assert len(found) == 128
