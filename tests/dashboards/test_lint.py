"""What Grafana's own dashboard linter demands, by its rules' names, and what its authors do besides."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import pytest
from grafana_foundation_sdk.models import units

from dashboards.expand import Chosen, expand
from tests.support.grafana import NAMES, load, marks, panels, targets, variables
from tests.support.promql import selectors

UNITS = {value for name, value in vars(units).items() if name[0].isupper() and isinstance(value, str)}
CHOSEN = Chosen(server="main", job=".+", instance=r"127\.0\.0\.1:9889")


@pytest.fixture(params=NAMES)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


# ---- template rules --------------------------------------------------------------------------------------------------


def test_template_datasource_rule(dashboard: dict[str, Any]) -> None:
    variable = variables(dashboard)["datasource"]
    assert (variable["type"], variable["query"], variable["label"]) == ("datasource", "prometheus", "Data source")


@pytest.mark.parametrize("name", ["job", "instance"])
def test_template_job_rule_and_template_instance_rule(dashboard: dict[str, Any], name: str) -> None:
    variable = variables(dashboard)[name]
    assert variable["type"] == "query"
    assert variable["label"] == name.capitalize()
    assert variable["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert variable["multi"] is True
    assert variable["allValue"] == ".+"


def test_template_label_promql_rule(dashboard: dict[str, Any]) -> None:
    for name, variable in variables(dashboard).items():
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert found is not None
            assert found[2] == name
            (selector,) = selectors(expand(found[1], CHOSEN))
            assert selector.metric == "llama_up"


def test_template_on_time_change_reload_rule(dashboard: dict[str, Any]) -> None:
    assert {variable["refresh"] for variable in variables(dashboard).values() if variable["type"] == "query"} == {2}


def test_each_variable_follows_those_that_narrow_it(dashboard: dict[str, Any]) -> None:
    order = list(variables(dashboard))
    assert order == ["datasource", "job", "instance", *(["server"] if dashboard["uid"] != "kvexporter-fleet" else [])]
    for place, name in enumerate(order[2:], 2):
        query = variables(dashboard)[name]["query"]["query"]
        assert all(f'{other}=~"${other}"' in query for other in order[1:place])


def test_a_dashboard_of_one_server_begins_with_one_instance() -> None:
    # Two hosts may have servers of the same name.
    for name in ("pool", "memory"):
        found = variables(load(name))
        assert found["instance"]["includeAll"] is False
        assert found["server"]["multi"] is False
    assert variables(load("fleet"))["instance"]["includeAll"] is True


# ---- panel rules -----------------------------------------------------------------------------------------------------


def test_panel_datasource_rule(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        for place in (panel, *panel["targets"]):
            assert place["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for mark in marks(dashboard):
        assert mark["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panel_title_description_rule(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
    titles = [panel["title"] for panel in dashboard["panels"]]
    assert all(title[0].isupper() for title in titles)


def test_panel_units_rule(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        overrides = [
            item["value"]
            for override in panel["fieldConfig"]["overrides"]
            for item in override["properties"]
            if item["id"] == "unit"
        ]
        for unit in (panel["fieldConfig"]["defaults"]["unit"], *overrides):
            assert unit in UNITS or unit.startswith("suffix:"), (panel["title"], unit)


def test_panel_no_targets_rule(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        references = [target["refId"] for target in panel["targets"]]
        assert references
        assert len(set(references)) == len(references)


def test_numbers_and_tables_say_what_is_the_matter_where_there_is_no_data(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        if panel["type"] in ("stat", "bargauge", "table"):
            assert "noValue" in panel["fieldConfig"]["defaults"], panel["title"]


def test_numbers_are_of_now_and_not_the_last_that_was_ever_known(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        if panel["type"] in ("stat", "bargauge", "table"):
            assert all(target["instant"] and not target.get("range") for target in panel["targets"]), panel["title"]
        else:
            assert all(target["range"] and not target.get("instant") for target in panel["targets"]), panel["title"]


def test_ids_are_unique_and_panels_lie_side_by_side(dashboard: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert ids == list(range(1, len(ids) + 1))
    places = [(panel["title"], panel["gridPos"]) for panel in dashboard["panels"]]
    for title, place in places:
        assert place["w"] > 0, title
        assert place["h"] > 0, title
        assert place["x"] >= 0, title
        assert place["x"] + place["w"] <= 24, title
    for (one, a), (other, b) in combinations(places, 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (one, other)


def test_lines_of_panels_are_filled_to_the_edge(dashboard: dict[str, Any]) -> None:
    widths: dict[int, int] = {}
    for panel in dashboard["panels"]:
        widths[panel["gridPos"]["y"]] = widths.get(panel["gridPos"]["y"], 0) + panel["gridPos"]["w"]
    assert set(widths.values()) == {24}


# ---- target rules ----------------------------------------------------------------------------------------------------


def test_target_promql_rule(dashboard: dict[str, Any]) -> None:
    for target in targets(dashboard):
        query = expand(target.query, CHOSEN)
        assert "$" not in query, target.where
        assert selectors(query), target.where


def test_target_rate_interval_rule(dashboard: dict[str, Any]) -> None:
    for target in targets(dashboard):
        for function, window in re.findall(r"(\w+)\([^()]*\[([^\]]+)\]", target.query):
            allowed = ("$__rate_interval",) if function == "rate" else ("$__rate_interval", "$__range")
            assert function in ("rate", "increase", "changes")
            assert window in allowed, target.where


def test_target_job_rule_and_target_instance_rule(dashboard: dict[str, Any]) -> None:
    chosen = Chosen(job="THE-JOB", instance="THE-INSTANCE")
    queries = [(target.where, target.query) for target in targets(dashboard)]
    queries += [(mark["name"], mark["expr"]) for mark in marks(dashboard)]
    for where, query in queries:
        for selector in selectors(expand(query, chosen)):
            assert ("job", "=~", "THE-JOB") in selector.matchers, where
            assert ("instance", "=~", "THE-INSTANCE") in selector.matchers, where


def test_target_counter_agg_rule(dashboard: dict[str, Any]) -> None:
    cumulative = ("_total", "_bucket", "_count", "_sum")
    for target in targets(dashboard):
        for selector in selectors(expand(target.query, CHOSEN)):
            if selector.metric.endswith(cumulative):
                assert selector.function in ("rate", "increase"), target.where
            else:
                assert selector.function in ("", "changes"), target.where


# ---- the dashboard ---------------------------------------------------------------------------------------------------


def test_uneditable_dashboard(dashboard: dict[str, Any]) -> None:
    assert dashboard["editable"] is False


def test_it_can_be_imported_and_provisioned(dashboard: dict[str, Any]) -> None:
    # An id would be another dashboard's in another Grafana; inputs are asked for on import only.
    assert dashboard.get("id") is None
    assert "__inputs" not in dashboard
    assert dashboard["tags"] == ["kvexporter", "llama.cpp"]
    assert dashboard["schemaVersion"] == 39
    assert (dashboard["refresh"], dashboard["graphTooltip"], dashboard["timezone"]) == ("30s", 1, "browser")
    assert dashboard["time"] == {"from": "now-1h", "to": "now"}


def test_it_links_to_the_others(dashboard: dict[str, Any]) -> None:
    (link,) = dashboard["links"]
    assert (link["type"], link["tags"]) == ("dashboards", ["kvexporter"])
    assert (link["keepTime"], link["includeVars"]) == (True, True)
