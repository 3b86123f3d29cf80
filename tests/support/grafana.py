"""The committed dashboards, as tests look at them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.paths import ROOT

FOLDER = ROOT / "dashboards"
NAMES = ("fleet", "pool", "memory")


@dataclass(frozen=True, slots=True)
class Target:
    """One query of one panel."""

    panel: str
    ref: str
    query: str
    legend: str
    instant: bool
    format: str

    @property
    def where(self) -> str:
        return f"{self.panel} {self.ref}"


def load(name: str) -> dict[str, Any]:
    """A dashboard's JSON."""
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return loaded


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """All panels but the headings of rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets(dashboard: dict[str, Any]) -> Iterator[Target]:
    """All queries of all panels."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield Target(
                panel["title"],
                target["refId"],
                target["expr"],
                target["legendFormat"],
                bool(target.get("instant")),
                target["format"],
            )


def marks(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """The marks that come from Prometheus."""
    return [mark for mark in dashboard["annotations"]["list"] if not mark.get("builtIn")]


def variables(dashboard: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The variables by name, in their order."""
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}
