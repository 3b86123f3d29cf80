"""The dashboards' files: up to date, complete, and found where the documents say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.__main__ import main
from dashboards.files import FILES
from kvexporter.rules import links
from tests.support.grafana import FOLDER, NAMES, load
from tests.support.paths import ROOT

# What Grafana reads of a mark by Prometheus, and the library's schema does not have.
MARKS_KEYS = {"titleFormat", "textFormat", "tagKeys", "step", "useValueForTime"}


@pytest.mark.parametrize("name", FILES)
def test_the_committed_dashboard_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == FILES[name](), "run: python -m dashboards"


def test_the_dashboards_are_written_where_asked(tmp_path: Path) -> None:
    main([str(tmp_path / "new")])
    assert {path.name for path in (tmp_path / "new").iterdir()} == {f"{name}.json" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_grafanas_schema_knows_every_key(name: str) -> None:
    raw = load(name)
    for mark in raw["annotations"]["list"]:
        for key in MARKS_KEYS:
            mark.pop(key, None)
    known = json.loads(json.dumps(Dashboard.from_json(raw), cls=JSONEncoder))
    assert sorted(_paths(raw) - _paths(known)) == []


def _paths(value: Any, place: str = "") -> set[str]:
    if isinstance(value, dict):
        return {place}.union(*(_paths(inner, f"{place}.{key}") for key, inner in value.items()))
    if isinstance(value, list):
        return {place}.union(*(_paths(inner, f"{place}[{at}]") for at, inner in enumerate(value)))
    return {f"{place}={value!r}"}


def test_the_uids_are_those_that_alerts_link_to() -> None:
    assert [load(name)["uid"] for name in NAMES] == [
        links.FLEET_DASHBOARD,
        links.POOL_DASHBOARD,
        links.MEMORY_DASHBOARD,
    ]


def test_links_between_dashboards_lead_to_ones_that_exist() -> None:
    for name in NAMES:
        found = set(re.findall(r"/d/([a-z-]+)\?", (FOLDER / f"{name}.json").read_text()))
        assert found <= {load(other)["uid"] for other in NAMES}


def test_links_hand_over_all_variables_of_the_dashboard_they_lead_to() -> None:
    for query in re.findall(r'/d/kvexporter-[a-z]+\?([^"]+)', (FOLDER / "fleet.json").read_text()):
        assert re.findall(r"var-(\w+)=", query) == ["datasource", "job", "instance", "server"]


def test_the_provisioning_example_reads_a_folder_and_leaves_the_dashboards_alone() -> None:
    (provider,) = yaml.safe_load((FOLDER / "provisioning.yaml").read_text())["providers"]
    assert provider["type"] == "file"
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards/kvexporter"
    assert provider["allowUiUpdates"] is False
    readme = (FOLDER / "README.md").read_text()
    assert provider["options"]["path"] in readme
    assert all(f"{name}.json" in readme for name in NAMES)


def test_pictures_are_small_enough_for_a_readme() -> None:
    for name in NAMES:
        picture = ROOT / "docs" / "images" / f"dashboard-{name}.png"
        assert picture.stat().st_size < 300 * 1024
