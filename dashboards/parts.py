"""The kinds of panels, as this project draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, heatmap, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import DashboardLink, FieldColor, ThresholdsConfig
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode

from dashboards.datasource import DATASOURCE
from dashboards.limits import PLAIN
from dashboards.queries import Query
from kvexporter.rules.links import runbook_url

TOKENS = units.LocaleFormat
RATIO = units.PercentUnit
SECONDS = units.Seconds
DURATION = units.DurationSeconds
BYTES = units.BytesIEC
COUNT = units.Short
TOKENS_PER_SECOND = "suffix: tok/s"
TIMES = "suffix:×"  # noqa: RUF001 (the sign that Grafana shows)
NOW = units.DateTimeFromNow


@dataclass(frozen=True, slots=True)
class Part:
    """A panel and the room that it takes on a grid of 24 columns."""

    panel: model.Panel
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Override:
    """What differs for some series: those with this name, or whose name matches `pattern`."""

    name: str = ""
    pattern: str = ""
    properties: tuple[tuple[str, Any], ...] = ()


def line(name: str, color: str, dash: bool = True) -> Override:
    """Show a series as a plain line over a stack of areas: a limit, not a part."""
    style = {"fill": "dash", "dash": [8, 6]} if dash else {"fill": "solid"}
    return Override(
        name,
        properties=(
            ("custom.stacking", {"mode": "none", "group": "lines"}),
            ("custom.fillOpacity", 0),
            ("custom.lineWidth", 2),
            ("custom.lineStyle", style),
            ("color", {"mode": "fixed", "fixedColor": color}),
        ),
    )


def colored(name: str, color: str) -> Override:
    """Show a series in one colour."""
    return Override(name, properties=(("color", {"mode": "fixed", "fixedColor": color}),))


def graph(
    title: str, description: str, unit: str, *queries: Query,
    width: int = 8, height: int = 8, stacked: bool = False, bars: bool = False, bottom: float | None = 0,
    top: float | None = None, limits: ThresholdsConfig | None = None, overrides: Sequence[Override] = (),
    runbooks: Sequence[str] = (), link: DashboardLink | None = None, legend: bool = True,
) -> Part:  # fmt: skip
    """Values over time. `limits` are drawn as lines."""
    panel = (
        timeseries.Panel()
        .legend(
            common.VizLegendOptions()
            .display_mode(kinds.LegendDisplayMode.LIST)
            .placement(kinds.LegendPlacement.BOTTOM)
            .show_legend(legend)
            .calcs([])
        )
        .tooltip(
            common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING)
        )
        .color_scheme(FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
        .draw_style(kinds.GraphDrawStyle.BARS if bars else kinds.GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(60 if bars or stacked else 8)
        .show_points(kinds.VisibilityMode.AUTO)
        .span_nulls(False)
        .stacking(common.StackingConfig().mode(
            kinds.StackingMode.NORMAL if stacked else kinds.StackingMode.NONE
        ).group("A"))
    )  # fmt: skip
    if bottom is not None:
        panel.min(bottom)
    if top is not None:
        # A soft maximum: what goes beyond must not be cut off.
        panel.axis_soft_max(top)
    if limits is not None:
        panel.thresholds(limits).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(kinds.GraphThresholdsStyleMode.DASHED)
        )
    else:
        panel.thresholds(PLAIN)
    if link is not None:
        panel.data_links([link])
    _overrides(panel, overrides)
    return _finish(panel, title, description, unit, queries, width, height, runbooks)


def number(
    title: str, description: str, unit: str, *queries: Query,
    width: int = 3, height: int = 4, limits: ThresholdsConfig = PLAIN, none: str = "unknown",
    names: bool = False, runbooks: Sequence[str] = (), mappings: Sequence[model.ValueMapping] = (),
    decimals: int | None = None,
) -> Part:  # fmt: skip
    """Values of this moment, large. `none` is shown where there is none; `names` shows the series' names alone."""
    panel = (
        stat.Panel()
        .graph_mode(kinds.BigValueGraphMode.NONE)
        .color_mode(kinds.BigValueColorMode.VALUE)
        .text_mode(
            kinds.BigValueTextMode.NAME
            if names
            else kinds.BigValueTextMode.AUTO if len(queries) > 1 else kinds.BigValueTextMode.VALUE
        )
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
        .color_scheme(FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        .thresholds(limits)
        .no_value(none)
        .mappings(list(mappings))
    )  # fmt: skip
    if decimals is not None:
        panel.decimals(decimals)
    return _finish(panel, title, description, unit, queries, width, height, runbooks)


def bars(
    title: str, description: str, unit: str, *queries: Query,
    width: int = 8, height: int = 8, overrides: Sequence[Override] = (), runbooks: Sequence[str] = (),
    none: str = "unknown",
) -> Part:  # fmt: skip
    """Values of this moment beside each other."""
    panel = (
        bargauge.Panel()
        .display_mode(kinds.BarGaugeDisplayMode.BASIC)
        .orientation(kinds.VizOrientation.HORIZONTAL)
        .value_mode(kinds.BarGaugeValueMode.TEXT)
        .show_unfilled(True)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
        .color_scheme(FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
        .thresholds(PLAIN)
        .min(0)
        .no_value(none)
    )
    _overrides(panel, overrides)
    return _finish(panel, title, description, unit, queries, width, height, runbooks)


def buckets(title: str, description: str, unit: str, query: Query, *, width: int = 8, height: int = 8) -> Part:
    """A histogram over time: the darker, the more."""
    panel = (
        heatmap.Panel()
        .calculate(False)
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(32))
        .cell_gap(1)
        .y_axis(heatmap.YAxisConfig().unit(unit))
        .show_legend()
    )
    return _finish(panel, title, description, unit, (query,), width, height, ())


def timeline(
    title: str, description: str, words: dict[int, tuple[str, str]], *queries: Query,
    width: int = 12, height: int = 6, runbooks: Sequence[str] = (),
) -> Part:  # fmt: skip
    """States over time; `words` gives each value its word and colour."""
    panel = (
        statetimeline.Panel()
        .show_value(kinds.VisibilityMode.AUTO)
        .row_height(0.8)
        .merge_values(True)
        .fill_opacity(70)
        .line_width(0)
        .mappings([values(words)])
        .thresholds(PLAIN)
        .color_scheme(FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        .legend(
            common.VizLegendOptions()
            .display_mode(kinds.LegendDisplayMode.LIST)
            .placement(kinds.LegendPlacement.BOTTOM)
            .show_legend(False)
            .calcs([])
        )
    )
    return _finish(panel, title, description, units.Short, queries, width, height, runbooks)


def rows(
    title: str, description: str, *queries: Query,
    width: int = 24, height: int = 8, columns: Sequence[tuple[str, str]], hidden: Sequence[str] = (),
    overrides: Sequence[Override] = (), runbooks: Sequence[str] = (), none: str = "none", sort: str = "",
    unit: str = COUNT,
) -> Part:  # fmt: skip
    """A table of this moment. `columns` are (field, heading) from left to right; `hidden` names further fields that are
    not shown, besides the time and the labels that have no column.

    The fields of queries are called `Value #A`, `Value #B` …; with one query alone `Value`.
    """
    shown = [field for field, _ in columns]
    left_out = ["Time", "__name__", *hidden, *(name for name in ("job", "instance", "server") if name not in shown)]
    panel = (
        table.Panel()
        .show_header(True)
        .cell_height(kinds.TableCellHeight.SM)
        .thresholds(PLAIN)
        .color_scheme(FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        .no_value(none)
        .with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            model.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": dict.fromkeys(left_out, True),
                    "includeByName": {},
                    "indexByName": {field: place for place, field in enumerate(shown)},
                    "renameByName": dict(columns),
                },
            )
        )
    )
    if sort:
        panel.sort_by([common.TableSortByFieldState().display_name(sort).desc(False)])
    _overrides(panel, overrides)
    return _finish(panel, title, description, unit, queries, width, height, runbooks)


def values(words: dict[int, tuple[str, str]]) -> model.ValueMap:
    """Words and colours in place of numbers."""
    results = {
        str(value): model.ValueMappingResult(text=text, color=color, index=place)
        for place, (value, (text, color)) in enumerate(words.items())
    }
    return model.ValueMap(results)


Panels = timeseries.Panel | stat.Panel | bargauge.Panel | heatmap.Panel | statetimeline.Panel | table.Panel


def _overrides(panel: timeseries.Panel | table.Panel | bargauge.Panel, overrides: Sequence[Override]) -> None:
    for override in overrides:
        properties = [model.DynamicConfigValue(name, value) for name, value in override.properties]
        if override.pattern:
            panel.override_by_regexp(override.pattern, properties)
        else:
            panel.override_by_name(override.name, properties)


def _finish(
    panel: Panels, title: str, description: str, unit: str, queries: Sequence[Query],
    width: int, height: int, runbooks: Sequence[str],
) -> Part:  # fmt: skip
    panel.title(title).description(description).unit(unit).datasource(DATASOURCE)
    panel.targets([query.target(place) for place, query in enumerate(queries)])
    if runbooks:
        panel.links(
            [
                DashboardLink(f"Runbook: {alert}")
                .type(model.DashboardLinkType.LINK)
                .url(runbook_url(alert))
                .target_blank(True)
                for alert in runbooks
            ]
        )
    return Part(panel.build(), width, height)
