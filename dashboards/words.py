"""Numbers as Grafana shows them in each unit."""

from __future__ import annotations

from math import ceil, floor, isfinite, log10


def shown(value: float, unit: str, decimals: int | None = None) -> str:
    """Give a number with its unit, in few characters."""
    if not isfinite(value):
        return ""
    if unit == "percentunit":
        return f"{value * 100:.{decimals if decimals is not None else _few(value * 100)}f}%"
    if unit == "bytes":
        return _scaled(value, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))
    if unit in ("s", "dtdurations"):
        return _duration(value)
    if unit == "locale":
        return f"{value:,.0f}"
    if unit.startswith("suffix:"):
        return f"{_plain(value, decimals)}{unit.removeprefix('suffix:')}"
    return _plain(value, decimals) + {"celsius": " °C", "watt": " W", "cps": " c/s"}.get(unit, "")


def _few(value: float) -> int:
    return 0 if abs(value) >= 10 or value == round(value) else 1


def _plain(value: float, decimals: int | None) -> str:
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if abs(value) >= 10_000:
        return _scaled(value, 1000, ("", " K", " Mil", " Bil"))
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _scaled(value: float, step: int, names: tuple[str, ...]) -> str:
    place = 0
    while abs(value) >= step and place < len(names) - 1:
        value /= step
        place += 1
    return f"{value:.3g}{names[place]}" if abs(value) < 100 else f"{value:.0f}{names[place]}"


def _duration(seconds: float) -> str:
    if abs(seconds) < 60:
        return f"{seconds:.3g} s"
    if abs(seconds) < 3600:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"


def ticks(low: float, high: float, unit: str) -> list[float]:
    """Give about five round values of an axis."""
    base = 1.0
    if unit == "bytes":
        while abs(high) >= 1024 * base:
            base *= 1024
    elif unit in ("s", "dtdurations") and high >= 120:
        base = 60.0 if high < 7200 else 3600.0
    rough = (high - low) / base / 5
    power = 10 ** floor(log10(rough)) if rough > 0 else 1.0
    step = next((factor for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough), 10) * power * base
    first = ceil(low / step)
    return [step * place for place in range(first, floor(high / step) + 1)]
