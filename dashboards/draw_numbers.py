"""Panels that show this moment: large numbers, bars, tables."""

from __future__ import annotations

import time
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from dashboards.answers import Answers, Drawn
from dashboards.looks import FAINT, GRID, INK, PALETTE, colour, inches, step_colour
from dashboards.words import shown


def draw_number(axes: Axes, panel: dict[str, Any], answers: Answers, _: list[tuple[float, str]]) -> None:
    """Draw one or a few large numbers."""
    _bare(axes)
    defaults = panel["fieldConfig"]["defaults"]
    drawn = answers.series(panel)
    mode = panel["options"]["textMode"]
    if not drawn:
        axes.text(0.5, 0.45, defaults["noValue"], ha="center", va="center", fontsize=10, color=FAINT)
        return
    room = inches(axes)[0] / len(drawn)
    for place, series in enumerate(drawn):
        value = series.points[-1][1]
        text = series.name if mode == "name" else _number(value, defaults, answers)
        middle = (place + 0.5) / len(drawn)
        size = min(19.0, 105 * room / max(4, len(text)))
        ink = step_colour(value, defaults["thresholds"]["steps"])
        axes.text(middle, 0.5, text, ha="center", va="center", fontsize=size, color=ink)
        if len(drawn) > 1:
            axes.text(middle, 0.05, series.name, ha="center", va="bottom", fontsize=7.5, color=FAINT)


def _number(value: float, defaults: dict[str, Any], answers: Answers) -> str:
    if defaults["unit"] == "dateTimeFromNow":
        seconds = answers.end - value / 1000
        return f"{shown(seconds, 's')} ago" if seconds < 172_800 else time.strftime("%F", time.gmtime(value / 1000))
    return shown(value, defaults["unit"], defaults.get("decimals"))


def draw_bars(axes: Axes, panel: dict[str, Any], answers: Answers, _: list[tuple[float, str]]) -> None:
    """Draw values as bars below each other."""
    _bare(axes)
    defaults = panel["fieldConfig"]["defaults"]
    drawn = [series for series in answers.series(panel) if series.points]
    if not drawn:
        axes.text(0.5, 0.5, defaults["noValue"], ha="center", va="center", fontsize=10, color=FAINT)
        return
    largest = max(series.points[-1][1] for series in drawn) or 1.0
    for place, series in enumerate(drawn):
        value = series.points[-1][1]
        top = 1 - (place + 1) / len(drawn)
        tall = 0.55 / len(drawn)
        axes.add_patch(Rectangle((0.36, top + tall * 0.4), 0.44, tall, facecolor=GRID, lw=0))
        axes.add_patch(
            Rectangle((0.36, top + tall * 0.4), 0.44 * value / largest, tall, facecolor=_ink(series, place), lw=0)
        )
        axes.text(0.34, top + tall * 0.9, series.name, ha="right", va="center")
        axes.text(0.82, top + tall * 0.9, shown(value, defaults["unit"], defaults.get("decimals")), va="center")


def draw_table(axes: Axes, panel: dict[str, Any], answers: Answers, _: list[tuple[float, str]]) -> None:
    """Draw a table as its transformations order, name and hide its columns."""
    _bare(axes)
    defaults = panel["fieldConfig"]["defaults"]
    organize = panel["transformations"][-1]["options"]
    options = {override["matcher"]["options"]: _properties(override) for override in panel["fieldConfig"]["overrides"]}
    columns = [
        (field, organize["renameByName"][field])
        for field in sorted(organize["indexByName"], key=organize["indexByName"].__getitem__)
        if not options.get(organize["renameByName"][field], {}).get("custom.hidden")
    ]
    rows = answers.rows(panel)
    if not rows:
        axes.text(0.5, 0.5, defaults["noValue"], ha="center", va="center", fontsize=10, color=FAINT)
        return
    for key in (sort["displayName"] for sort in panel["options"].get("sortBy", [])):
        field = next(field for field, name in columns if name == key)
        rows.sort(key=lambda row: str(row.get(field, "")))
    cells = [[_cell(row.get(field), defaults, options.get(name, {})) for field, name in columns] for row in rows]
    widths = [max(len(name), *(len(line[place][0]) for line in cells)) + 2 for place, (_, name) in enumerate(columns)]
    total = sum(widths)
    line_height = 0.22 / inches(axes)[1]
    left = 0.0
    for place, (_, name) in enumerate(columns):
        axes.text(left, 1 - line_height / 2, name, weight="bold", va="center", color=FAINT, fontsize=7)
        for number, line in enumerate(cells, 1):
            text, ink = line[place]
            axes.text(left, 1 - line_height * (number + 0.5), text, va="center", color=ink)
        left += widths[place] / total
    for number in range(1, len(cells) + 1):
        axes.axhline(1 - line_height * number, color=GRID, lw=0.8)


def _cell(value: str | float | None, defaults: dict[str, Any], options: dict[str, Any]) -> tuple[str, str]:
    if value is None or isinstance(value, str):
        return value or "", INK
    ink = step_colour(value, options["thresholds"]["steps"]) if "thresholds" in options else INK
    return shown(value, options.get("unit", defaults["unit"]), options.get("decimals")), ink


def _properties(override: dict[str, Any]) -> dict[str, Any]:
    return {item["id"]: item.get("value") for item in override["properties"]}


def _ink(series: Drawn, place: int) -> str:
    fixed = series.options.get("color")
    return colour(fixed["fixedColor"]) if fixed else PALETTE[place % len(PALETTE)]


def _bare(axes: Axes) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xticks([])
    axes.set_yticks([])
