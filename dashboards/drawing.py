"""Draws a dashboard with its answers as Grafana would lay it out, without Grafana."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from dashboards.answers import Answers
from dashboards.draw_graphs import draw_buckets, draw_graph, draw_timeline
from dashboards.draw_numbers import draw_bars, draw_number, draw_table
from dashboards.looks import BACKGROUND, CARD, DOTS, EDGE, FAINT, INK

COLUMN, ROW = 0.58, 0.30
"""Inches of a grid's column and row."""
MARGIN = 0.15
COLOURS = 96
"""Few enough for a small file, enough for smooth letters."""

Draw = Callable[[Axes, dict[str, Any], Answers, list[tuple[float, str]]], None]

_KINDS: dict[str, Draw] = {
    "timeseries": draw_graph,
    "heatmap": draw_buckets,
    "state-timeline": draw_timeline,
    "stat": draw_number,
    "bargauge": draw_bars,
    "table": draw_table,
}


def draw(dashboard: dict[str, Any], answers: Answers, picture: Path, title: str) -> None:
    """Write a dashboard's picture (PNG)."""
    mpl.use("Agg")
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    width, height = 24 * COLUMN + 2 * MARGIN, (bottom + 2) * ROW + 2 * MARGIN
    with mpl.rc_context({"font.size": 7.5, "font.family": "DejaVu Sans", "text.color": INK}):
        figure = plt.figure(figsize=(width, height), dpi=DOTS, facecolor=BACKGROUND)
        figure.text(MARGIN / width, 1 - 0.22 / height, title, fontsize=12, weight="bold", va="center")
        marks = answers.marks(dashboard)
        for panel in dashboard["panels"]:
            _draw_panel(figure, panel, answers, marks, width, height)
        figure.savefig(picture, dpi=DOTS, facecolor=BACKGROUND)
        plt.close(figure)
    with Image.open(picture) as drawn:
        small = drawn.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(picture, optimize=True)


def _draw_panel(
    figure: Figure, panel: dict[str, Any], answers: Answers, marks: list[tuple[float, str]], width: float, height: float
) -> None:
    place = panel["gridPos"]
    left = MARGIN + place["x"] * COLUMN
    top = height - MARGIN - (place["y"] + 1.3) * ROW
    across, down = place["w"] * COLUMN, place["h"] * ROW
    if panel["type"] == "row":
        figure.text(left / width, (top - down / 2) / height, panel["title"], fontsize=9, weight="bold", va="center")
        return
    gap = 0.05
    box = (left + gap, top - down + gap, across - 2 * gap, down - 2 * gap)
    figure.add_artist(
        Rectangle(
            (box[0] / width, box[1] / height), box[2] / width, box[3] / height,
            transform=figure.transFigure, facecolor=CARD, edgecolor=EDGE, linewidth=0.8, zorder=-1,
        )
    )  # fmt: skip
    figure.text(
        (box[0] + 0.08) / width, (box[1] + box[3] - 0.13) / height,
        textwrap.shorten(panel["title"], int(across * 14.5), placeholder="…"), fontsize=7.5, weight="bold", va="center",
    )  # fmt: skip
    plain = panel["type"] in ("stat", "bargauge", "table")
    inside = (0.08, 0.06, 0.08, 0.27) if plain else (0.55, 0.47 if panel["type"] == "timeseries" else 0.25, 0.12, 0.3)
    axes = figure.add_axes(
        (
            (box[0] + inside[0]) / width,
            (box[1] + inside[1]) / height,
            (box[2] - inside[0] - inside[2]) / width,
            (box[3] - inside[1] - inside[3]) / height,
        ),
        facecolor=CARD,
    )
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0, colors=FAINT, labelsize=6.5)
    _KINDS[panel["type"]](axes, panel, answers, marks)
