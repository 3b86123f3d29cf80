"""Every query in the rules names series that exist, with labels that they have, and is free of the usual mistakes."""

from __future__ import annotations

import re

import promql_parser
import pytest

from kvexporter.metrics.definitions import METRICS
from kvexporter.rules.groups import ALERTS, GROUPS
from kvexporter.rules.rule import AlertRule, RecordingRule
from kvexporter.rules.words import LABELS, NUMBERS, placeholders, query
from tests.support.promql import Selected, grouped, selectors

TARGET = {"job", "instance"}
RECORDED = [rule for group in GROUPS for rule in group.rules if isinstance(rule, RecordingRule)]
COUNTERS = {metric.name for metric in METRICS if metric.kind == "counter"} | {
    f"{metric.name}_{part}" for metric in METRICS if metric.kind == "histogram" for part in ("bucket", "sum", "count")
}

EXPRESSIONS = {rule.name: rule.expr for rule in RECORDED} | {alert.name: alert.expr for alert in ALERTS}
ANNOTATIONS = {
    f"{alert.name} {name}": query(name, dict.fromkeys(alert.labels, "x"))
    for alert in ALERTS
    for name in placeholders((alert.summary, *alert.description))
    if name in NUMBERS
}
QUERIES = EXPRESSIONS | ANNOTATIONS

each_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
each_query = pytest.mark.parametrize("name", QUERIES)


def known() -> dict[str, set[str]]:
    """All series that there are: name → labels."""
    found: dict[str, set[str]] = {"up": TARGET}
    for metric in METRICS:
        labels = {*metric.labels, *TARGET}
        if metric.kind == "histogram":
            found |= {f"{metric.name}_bucket": {*labels, "le"}, f"{metric.name}_sum": labels}
            found[f"{metric.name}_count"] = labels
        else:
            found[metric.name] = labels
    for rule in RECORDED:
        found[rule.name] = grouped(rule.expr) - {"le"}
    return found


@each_query
def test_every_series_exists_with_the_labels_that_are_asked_for(name: str) -> None:
    series = known()
    found = selectors(QUERIES[name])
    assert found
    for one in found:
        assert one.metric in series, f"nothing emits {one.metric}"
        assert one.labels <= series[one.metric], f"{one.metric} has no {one.labels - series[one.metric]}"
    kept = set().union(*(series[one.metric] for one in found))
    assert grouped(QUERIES[name]) <= kept


@each_query
def test_no_matcher_is_a_regular_expression_that_is_none(name: str) -> None:
    for one in selectors(QUERIES[name]):
        for label, kind, value in one.matchers:
            assert kind in ("=", "!=") or re.search(r"[.*+|\[(?\\]", value), f"{label}{kind}{value!r}"
            assert not value.startswith("^")
            assert not value.endswith("$")


@each_query
def test_no_window_is_shorter_than_four_scrapes_a_minute_apart(name: str) -> None:
    for one in selectors(QUERIES[name]):
        assert one.seconds is None or one.seconds >= 240


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_no_counter_is_looked_at_raw(name: str) -> None:
    for one in selectors(EXPRESSIONS[name]):
        if one.metric in COUNTERS and not _new_series(name, one):
            assert one.function in ("rate", "increase", "changes"), f"{one.metric} in {one.function or 'no function'}"


def _new_series(name: str, one: Selected) -> bool:
    # A code has no series before its first exit: only whether there is one is looked at, not how large it is.
    return name == "LlamaServerCrashLooping" and one.metric == "llama_unit_exits_total"


@each_alert
def test_an_alert_compares_something_and_chooses_no_top(alert: AlertRule) -> None:
    operators, aggregations = set(), set()

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.BinaryExpr):
            operators.add(str(node.op))
        if isinstance(node, promql_parser.AggregateExpr):
            aggregations.add(str(node.op))

    promql_parser.walk(promql_parser.parse(alert.expr), visit)
    assert operators & {">", "<", ">=", "<=", "=="}
    # The members of a topk change from one evaluation to the next; counting finds no series where there are none.
    assert aggregations <= {"max", "sum"}


@each_alert
def test_an_alert_has_no_labels_but_its_own(alert: AlertRule) -> None:
    recorded = set().union(
        *(known()[one.metric] for one in selectors(alert.expr) if one.metric in {rule.name for rule in RECORDED}), set()
    )
    assert grouped(alert.expr) | recorded == set(alert.labels)
    assert not set(alert.rule_labels) & set(alert.labels)


@each_alert
def test_texts_name_only_what_there_is(alert: AlertRule) -> None:
    for name in placeholders((alert.summary, *alert.description)):
        assert name in NUMBERS or name in alert.labels, f"{alert.name} says {{{name}}}"
    assert not any(name in NUMBERS for name in placeholders((alert.summary, alert.description[0])))
    assert all(sentence.endswith(".") for sentence in alert.description)
    assert not alert.summary.endswith(".")
    assert "First: " in alert.description[-1] or alert.name in ("LlamaContextExceeded", "LlamaPoolOvercommitted")


@each_alert
def test_what_may_be_absent_for_a_scrape_is_waited_for(alert: AlertRule) -> None:
    if "absent(" in alert.expr or "== 0" in alert.expr:
        assert alert.hold >= 60


def test_no_placeholder_is_left_over() -> None:
    said = {name for alert in ALERTS for name in placeholders((alert.summary, *alert.description))}
    assert said == {*NUMBERS, *LABELS}


def test_names_are_unique_and_in_prometheus_form() -> None:
    names = list(EXPRESSIONS)
    assert len(names) == len({*names}) == sum(len(group.rules) for group in GROUPS)
    assert all(re.fullmatch(r"(Llama|Kvexporter)[A-Za-z]+", alert.name) for alert in ALERTS)
    assert all(re.fullmatch(r"[a-z]+:[a-z_]+:[a-z0-9_]+", rule.name) for rule in RECORDED)
    assert all("_total" not in rule.name for rule in RECORDED)


def test_groups_are_evaluated_at_least_every_five_minutes() -> None:
    assert all(group.interval <= 300 for group in GROUPS)
