"""Panels that show time: lines, stacks, bars, histograms, states."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from dashboards.answers import Answers, Drawn
from dashboards.looks import FAINT, GRID, PALETTE, colour, inches
from dashboards.words import shown, ticks

Numbers = NDArray[np.float64]


def draw_graph(axes: Axes, panel: dict[str, Any], answers: Answers, marks: list[tuple[float, str]]) -> None:
    """Draw lines, areas or bars over time."""
    defaults = panel["fieldConfig"]["defaults"]
    custom = defaults["custom"]
    drawn = answers.series(panel)
    times = _times(answers)
    below = np.zeros(len(times))
    largest = 0.0
    stacked = custom["stacking"]["mode"] == "normal"
    for place, series in enumerate(drawn):
        values = _on(times, series, answers)
        largest = max(largest, float(np.nan_to_num(values).max()))
        ink = _ink(series, place)
        if series.options.get("custom.stacking", {}).get("mode") == "none" or not stacked:
            dash = series.options.get("custom.lineStyle", {}).get("fill") == "dash"
            if custom["drawStyle"] == "bars":
                axes.bar(times, values, width=answers.chosen.interval * 0.9, color=ink, label=series.name)
            else:
                width = float(series.options.get("custom.lineWidth", 1.3))
                axes.plot(times, values, color=ink, lw=width, ls=(0, (4, 3)) if dash else "-", label=series.name)
                _lone_points(axes, times, values, ink)
                if not series.options:
                    axes.fill_between(times, 0, values, color=ink, alpha=0.08, lw=0)
        else:
            top = below + np.nan_to_num(values)
            axes.fill_between(times, below, top, color=ink, alpha=0.65, lw=0.4, label=series.name)
            below = top
    _limits(axes, defaults, custom, largest)
    _time_axis(axes, answers, marks)
    unit = defaults["unit"]
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit)))
    axes.set_yticks([tick for tick in ticks(*axes.get_ylim(), unit) if tick <= axes.get_ylim()[1]])
    if not drawn:
        axes.text(0.5, 0.5, "No data", transform=axes.transAxes, ha="center", color=FAINT)
        return
    axes.legend(
        loc="upper left", bbox_to_anchor=(-0.02, -0.17 / inches(axes)[1]), frameon=False,
        ncols=_legend_columns(axes, drawn), fontsize=6, handlelength=1.0, columnspacing=1.0, borderpad=0,
        handletextpad=0.5, labelspacing=0.25,
    )  # fmt: skip


def _legend_columns(axes: Axes, drawn: list[Drawn]) -> int:
    longest = max(len(series.name) for series in drawn)
    return max(1, min(len(drawn), int(inches(axes)[0] / (0.055 * longest + 0.32))))


def _limits(axes: Axes, defaults: dict[str, Any], custom: dict[str, Any], largest: float) -> None:
    low, high = axes.get_ylim()
    if "min" in defaults:
        low = defaults["min"]
    if "axisSoftMax" in custom:
        high = max(high, custom["axisSoftMax"])
    if largest <= low >= 0:
        # All are 0: an axis of thousandths would look like something.
        high = low + 1
    if custom.get("thresholdsStyle", {}).get("mode", "off") != "off":
        for step in defaults["thresholds"]["steps"][1:]:
            if low <= step["value"] <= high:
                axes.axhline(step["value"], color=colour(step["color"]), lw=0.9, ls=(0, (5, 3)))
    axes.set_ylim(low, high)


def draw_buckets(axes: Axes, panel: dict[str, Any], answers: Answers, marks: list[tuple[float, str]]) -> None:
    """Draw a histogram over time."""
    drawn = sorted(answers.series(panel), key=lambda series: float(series.labels["le"]))
    times = _times(answers)
    cumulative = np.array([np.nan_to_num(_on(times, series, answers)) for series in drawn])
    counts = np.diff(cumulative, axis=0, prepend=0).clip(min=0)
    counts[counts < 0.05] = np.nan
    axes.pcolormesh(np.append(times, answers.end), np.arange(len(drawn) + 1), counts, cmap="Blues", vmin=-0.5)
    unit = panel["fieldConfig"]["defaults"]["unit"]
    labels = ["+Inf" if series.labels["le"] == "+Inf" else shown(float(series.labels["le"]), unit) for series in drawn]
    axes.set_yticks(np.arange(1, len(drawn) + 1)[::2], labels[::2])
    _time_axis(axes, answers, marks)


def draw_timeline(axes: Axes, panel: dict[str, Any], answers: Answers, marks: list[tuple[float, str]]) -> None:
    """Draw states over time, one line for each series."""
    drawn = answers.series(panel)
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    times = _times(answers)
    for place, series in enumerate(drawn):
        values = _on(times, series, answers)
        for value, result in mapping["options"].items():
            here = values == float(value)
            axes.fill_between(
                times, place + 0.1, place + 0.9, where=here.tolist(), step="post", color=colour(result["color"]),
                alpha=0.6, lw=0,
            )  # fmt: skip
            if here.any():
                axes.text(times[here][0], place + 0.5, f" {result['text']}", va="center", fontsize=6)
    axes.set_yticks(np.arange(len(drawn)) + 0.5, [series.name.rpartition(" ")[2] for series in drawn])
    axes.set_ylim(len(drawn), 0)
    _time_axis(axes, answers, marks)


def _times(answers: Answers) -> Numbers:
    return np.arange(answers.start, answers.end + 0.001, answers.chosen.interval)


def _on(times: Numbers, series: Drawn, answers: Answers) -> Numbers:
    """Give the values at the steps of the time range; NaN where there is none, so that lines have gaps."""
    values = np.full(len(times), np.nan)
    for at, value in series.points:
        values[round((at - answers.start) / answers.chosen.interval)] = value
    return values


def _lone_points(axes: Axes, times: Numbers, values: Numbers, ink: str) -> None:
    known = ~np.isnan(values)
    padded = np.concatenate(([False], known, [False]))
    lone = known & ~padded[:-2] & ~padded[2:]
    axes.plot(times[lone], values[lone], ls="", marker="o", ms=2.2, color=ink)


def _ink(series: Drawn, place: int) -> str:
    fixed = series.options.get("color")
    return colour(fixed["fixedColor"]) if fixed else PALETTE[place % len(PALETTE)]


def _time_axis(axes: Axes, answers: Answers, marks: list[tuple[float, str]]) -> None:
    for at, color in marks:
        axes.axvline(at, color=colour(color), lw=0.9, ls=(0, (2, 2)))
    axes.set_xlim(answers.start, answers.end)
    span = answers.end - answers.start
    each = next((step for step in (15, 30, 60, 120, 180, 300, 600) if span / step <= 8), 1200)
    ticks = np.arange(0, span + 1, each)
    axes.set_xticks(ticks + answers.start, [f"{int(tick // 60)}:{int(tick % 60):02}" for tick in ticks])
    axes.grid(color=GRID, lw=0.6)
    axes.set_axisbelow(True)
