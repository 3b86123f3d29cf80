"""Colours of the pictures: Grafana's names for them, and its palette for series."""

from __future__ import annotations

from matplotlib.axes import Axes

DOTS = 88
"""Of the pictures, to the inch."""

BACKGROUND, CARD, EDGE, INK, FAINT, GRID = "#f4f5f5", "#ffffff", "#d9dadd", "#24292e", "#6e7075", "#ececee"

PALETTE = (
    "#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0",
    "#37872d", "#fade2a", "#447ebc", "#c15c17", "#890f02", "#0a437c", "#6d1f62", "#584477",
)  # fmt: skip

_NAMES = {
    "green": "#56a64b",
    "yellow": "#e0a800",
    "red": "#e02f44",
    "orange": "#ff780a",
    "blue": "#3274d9",
    "purple": "#a352cc",
    "text": INK,
}


def colour(name: str) -> str:
    """Give what matplotlib understands for a colour of Grafana's."""
    return _NAMES.get(name, name)


def step_colour(value: float, steps: list[dict[str, object]]) -> str:
    """Give the colour that thresholds have at a value."""
    found = steps[0]["color"]
    for step in steps[1:]:
        bound = step["value"]
        if isinstance(bound, int | float) and value >= bound:
            found = step["color"]
    return colour(str(found))


def inches(axes: Axes) -> tuple[float, float]:
    """Give a drawing area's width and height."""
    return axes.bbox.width / DOTS, axes.bbox.height / DOTS
