"""A dashboard's JSON with the answers to its queries: what is to be drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dashboards.asking import Series, ask_at, ask_range
from dashboards.expand import Chosen, expand, series_name


@dataclass(frozen=True, slots=True)
class Drawn:
    """One series under the name and with the options that Grafana gives it."""

    name: str
    labels: dict[str, str]
    points: tuple[tuple[float, float], ...]
    options: dict[str, Any]
    """`unit`, `color`, `custom.stacking` …: the overrides for this series."""


class Answers:
    """Asks a Prometheus about one stretch of time."""

    def __init__(self, url: str, chosen: Chosen, start: float, end: float) -> None:
        self.url, self.chosen, self.start, self.end = url, chosen, start, end

    def series(self, panel: dict[str, Any]) -> list[Drawn]:
        """All series of a panel, in order."""
        return [
            Drawn(name, one.labels, one.points, _options(panel, name))
            for target in panel["targets"]
            for one in self._ask(target)
            for name in [series_name(target["legendFormat"], one.labels)]
        ]

    def rows(self, panel: dict[str, Any]) -> list[dict[str, str | float]]:
        """A table's rows, merged by the labels that all queries have in common: field → value."""
        answers = [self._ask(target) for target in panel["targets"]]
        found = [one.labels.keys() for answer in answers for one in answer]
        common = sorted(set.intersection(*map(set, found))) if found else []
        merged: dict[tuple[str, ...], dict[str, str | float]] = {}
        for target, answer in zip(panel["targets"], answers, strict=True):
            for one in answer:
                row = merged.setdefault(tuple(one.labels[label] for label in common), {})
                row.update(one.labels)
                row["Value" if len(answers) == 1 else f"Value #{target['refId']}"] = one.points[-1][1]
        return list(merged.values())

    def marks(self, dashboard: dict[str, Any]) -> list[tuple[float, str]]:
        """Times that are marked, with their colours."""
        found: set[tuple[float, str]] = set()
        for mark in dashboard["annotations"]["list"]:
            if mark.get("useValueForTime"):
                query = expand(mark["expr"], self.chosen)
                for one in ask_range(self.url, query, self.start, self.end, self.chosen.interval):
                    found.update((value / 1000, mark["iconColor"]) for _, value in one.points)
        return sorted(one for one in found if self.start <= one[0] <= self.end)

    def _ask(self, target: dict[str, Any]) -> list[Series]:
        query = expand(target["expr"], self.chosen)
        if target.get("instant"):
            return ask_at(self.url, query, self.end)
        return ask_range(self.url, query, self.start, self.end, self.chosen.interval)


def _options(panel: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        item["id"]: item.get("value")
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["id"] == "byName" and override["matcher"]["options"] == name
        for item in override["properties"]
    }
