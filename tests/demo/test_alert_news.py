"""The demonstration tells alerts by the thresholds of the shipped rules, once each."""

from __future__ import annotations

from dataclasses import replace

from kvexporter.demo.alert_news import RULES, AlertNews, conditions
from kvexporter.demo.commentary import Reading
from kvexporter.rules import thresholds as limit
from kvexporter.rules.groups import ALERTS

NOW = 1_796_000_000.0
SHARED = Reading(up=True, state="ready", capacity=262144, overcommit=4.0, fill=0.3, peak=0.3, committed=0.3)
SPLIT = replace(SHARED, overcommit=1.0, fill=1.0, peak=1.0, committed=1.0, demand=1.0, seconds_to_full=1.0)


def test_they_are_alerts_of_the_shipped_rules() -> None:
    assert all(rule in ALERTS for rule in RULES)


def test_a_shared_pool_with_room_is_only_overcommitted() -> None:
    assert list(conditions(SHARED, NOW)) == ["LlamaPoolOvercommitted"]


def test_a_pool_that_cannot_run_out_has_none_however_full_it_is() -> None:
    assert conditions(SPLIT, NOW) == {}


def test_a_pool_that_will_be_full_is_warned_of_and_then_paged_for() -> None:
    (first, *_) = limit.POOL_WARN
    assert first.committed_ratio is not None
    assert "LlamaPoolFillingUp" in conditions(replace(SHARED, committed=first.committed_ratio), NOW)
    held = conditions(replace(SHARED, fill=0.95, committed=1.0), NOW)
    assert {"LlamaPoolFillingUp", "LlamaPoolAlmostFull"} <= set(held)
    assert "95%" in held["LlamaPoolAlmostFull"]


def test_an_incident_counts_for_as_long_as_in_the_rules() -> None:
    reading = replace(SHARED, incident_at=NOW, requests_failed=4)
    assert conditions(reading, NOW + limit.INCIDENT_WINDOW - 1)["LlamaContextExceeded"] == "4 requests died so far"
    assert "LlamaContextExceeded" not in conditions(reading, NOW + limit.INCIDENT_WINDOW + 1)


def test_a_crash_loop_begins_with_the_restarts_of_the_rules() -> None:
    assert conditions(Reading(state="down", restarts=limit.CRASH_RESTARTS - 1, exits={"127": 2}), NOW) == {}
    held = conditions(Reading(state="down", restarts=limit.CRASH_RESTARTS, exits={"127": 2, "1": 1}), NOW)
    assert held["LlamaServerCrashLooping"] == "systemd restarted it 3 times, exit status 127 and 1"


def test_each_is_told_when_it_comes_and_when_it_is_over() -> None:
    news = AlertNews()
    assert len(news.news("agents", SHARED, NOW)) == 1
    assert news.news("agents", SHARED, NOW + 1) == []
    (line,) = news.news("agents", replace(SHARED, committed=1.0), NOW + 2)
    assert "LlamaPoolFillingUp (warning)" in line
    # It goes on for a while, as the rule has it.
    assert news.news("agents", SHARED, NOW + 2 + limit.POOL_WARN_KEEP - 1) == []
    assert news.news("agents", SHARED, NOW + 2 + limit.POOL_WARN_KEEP) == ["    agents: LlamaPoolFillingUp is over"]
    assert len(news.news("another", SHARED, NOW)) == 1
