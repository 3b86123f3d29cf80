"""Queries of panels. Every selector names job and instance, and on dashboards of one server the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode

from dashboards.datasource import DATASOURCE

HOST = 'job=~"$job", instance=~"$instance"'
"""All that the chosen exporters show."""

SERVER = f'{HOST}, server="$server"'
"""The chosen server."""

BY = "job, instance, server"

Shape = Literal["series", "now", "table", "heatmap"]


def hosts(metric: str, *matchers: str, window: str = "") -> str:
    """Select a metric of the chosen exporters, with `window` as a range."""
    return _select(metric, HOST, matchers, window)


def server(metric: str, *matchers: str, window: str = "") -> str:
    """Select a metric of the chosen server, with `window` as a range."""
    return _select(metric, SERVER, matchers, window)


def _select(metric: str, first: str, matchers: tuple[str, ...], window: str) -> str:
    text = f"{metric}{{{', '.join((first, *matchers))}}}"
    return f"{text}[{window}]" if window else text


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel. `now` and `table` are asked for the end of the time range only."""

    text: str
    legend: str = "__auto"
    shape: Shape = "series"

    def target(self, number: int) -> Dataquery:
        """Give the query as the panel's target with this number."""
        target = (
            Dataquery()
            .datasource(DATASOURCE)
            .expr(self.text)
            .legend_format(self.legend)
            .ref_id(chr(ord("A") + number))
            .editor_mode(QueryEditorMode.CODE)
            .format({"table": PromQueryFormat.TABLE, "heatmap": PromQueryFormat.HEATMAP}.get(
                self.shape, PromQueryFormat.TIME_SERIES
            ))
        )  # fmt: skip
        return target.instant() if self.shape in ("now", "table") else target.range()
