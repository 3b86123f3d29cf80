"""What the dashboards name is what the exporter emits and what the alerts mean."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dashboards.expand import Chosen, expand
from kvexporter.metrics.definitions import METRICS
from kvexporter.rules import thresholds
from kvexporter.rules.groups import ALERTS
from kvexporter.rules.links import runbook_url
from tests.support.grafana import NAMES, load, marks, panels, targets
from tests.support.promql import grouped, selectors

BY_NAME = {metric.name: metric for metric in METRICS}
OF_SCRAPES = {"job", "instance"}
"""Labels that Prometheus adds."""


@pytest.fixture(params=NAMES)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


def labels_of(name: str) -> set[str] | None:
    """The labels of a series; None if the exporter has no such series."""
    if name in BY_NAME:
        found = BY_NAME[name]
        return None if found.kind == "histogram" else {*found.labels, *OF_SCRAPES}
    base, _, part = name.rpartition("_")
    if base in BY_NAME and BY_NAME[base].kind == "histogram":
        more = {"bucket": {"le"}, "sum": set(), "count": set()}.get(part)
        return None if more is None else {*BY_NAME[base].labels, *OF_SCRAPES, *more}
    return None


def test_every_metric_and_label_of_a_query_is_one_that_the_exporter_emits(dashboard: dict[str, Any]) -> None:
    for target in targets(dashboard):
        query = expand(target.query, Chosen(server="main"))
        known: set[str] = set()
        for selector in selectors(query):
            labels = labels_of(selector.metric)
            assert labels is not None, f"{target.where}: {selector.metric}"
            assert selector.labels <= labels, f"{target.where}: {selector}"
            known |= labels
        assert grouped(query) <= known, target.where
        assert set(re.findall(r"{{(\w+)}}", target.legend)) <= known, target.where


def test_legends_tell_the_series_of_a_panel_apart(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        if panel["type"] != "table":
            names = [target["legendFormat"] for target in panel["targets"]]
            assert "__auto" not in names, panel["title"]
            assert len(set(names)) == len(names), panel["title"]


def test_every_selector_of_a_dashboard_of_one_server_names_it(dashboard: dict[str, Any]) -> None:
    one_server = dashboard["uid"] != "kvexporter-fleet"
    for target in targets(dashboard):
        for selector in selectors(expand(target.query, Chosen(server="main"))):
            of_servers = "server" in (labels_of(selector.metric) or ())
            assert (("server", "=", "main") in selector.matchers) == (one_server and of_servers), target.where


def test_marks_name_what_the_exporter_emits_or_alerts(dashboard: dict[str, Any]) -> None:
    for mark in marks(dashboard):
        (selector,) = selectors(expand(mark["expr"], Chosen(server="main")))
        if selector.metric != "ALERTS":
            assert selector.labels <= (labels_of(selector.metric) or set())
            # Marks at the times that are the values, which must be milliseconds.
            assert mark["useValueForTime"] is True
            assert mark["expr"].endswith(" * 1000")


def test_colours_change_at_the_alerts_thresholds() -> None:
    def steps(dashboard: str, title: str) -> list[float]:
        (panel,) = [one for one in panels(load(dashboard)) if one["title"] == title and one["type"] == "timeseries"]
        return [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]]

    assert steps("fleet", "Fill") == [thresholds.FILL_WARN_RATIO, thresholds.FILL_PAGE_RATIO]
    warn = [bound.committed_ratio for bound in thresholds.POOL_WARN if bound.committed_ratio is not None]
    page = [bound.committed_ratio for bound in thresholds.POOL_PAGE if bound.committed_ratio is not None]
    assert steps("fleet", "Committed") == sorted([*warn[:1], *([max(page)] if page else [])])
    warn = [bound.seconds_to_full for bound in thresholds.POOL_WARN if bound.seconds_to_full is not None]
    page = [bound.seconds_to_full for bound in thresholds.POOL_PAGE if bound.seconds_to_full is not None]
    expected = sorted({max(bounds) for bounds in (page, warn) if bounds})
    assert steps("pool", "Time to full") == expected
    assert steps("pool", "Standstill") == [thresholds.STALLED_SECONDS]
    assert steps("pool", "Age of running requests") == [thresholds.TASK_AGE_SECONDS]
    assert steps("memory", "Weights read again from disk") == [thresholds.MAJOR_FAULTS_PER_SECOND]


def test_thresholds_rise(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        if panel["type"] == "heatmap":
            continue
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert steps[0].get("value") is None
        values = [step["value"] for step in steps[1:]]
        assert values == sorted(values), panel["title"]


def test_links_lead_to_runbooks_of_alerts_that_exist(dashboard: dict[str, Any]) -> None:
    alerts = {alert.name for alert in ALERTS}
    for panel in panels(dashboard):
        for link in panel.get("links") or []:
            name = link["title"].removeprefix("Runbook: ")
            assert name in alerts, panel["title"]
            assert link["url"] == runbook_url(name)
