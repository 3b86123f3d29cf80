"""What a dashboard's queries give on a real Prometheus."""

from __future__ import annotations

from math import isfinite
from typing import Any

from dashboards.asking import ask_range
from dashboards.expand import Chosen, expand
from tests.support.grafana import targets
from tests.support.prometheus import Prometheus


def empty_targets(
    prometheus: Prometheus, dashboard: dict[str, Any], chosen: Chosen, start: float, end: float
) -> list[str]:
    """The queries (panel, letter) that give no finite number at any time between `start` and `end`."""

    def has_data(query: str) -> bool:
        found = ask_range(prometheus.url, expand(query, chosen), start, end, chosen.interval)
        return any(isfinite(value) for series in found for _, value in series.points)

    return [target.where for target in targets(dashboard) if not has_data(target.query)]
