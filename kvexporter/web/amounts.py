"""Numbers as the page says them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

UNKNOWN = "unknown"


def percent(ratio: float | None) -> str:
    """`75.0%`."""
    return UNKNOWN if ratio is None else f"{ratio:.1%}"


def tokens(number: int | None) -> str:
    """`262,144`."""
    return UNKNOWN if number is None else f"{number:,}"


def duration(seconds: float) -> str:
    """`40 s`, `3 min`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`: no more exact than is worth reading."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 600:
        return _two(whole, 60, "min", "s")
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return _two(whole // 60, 60, "h", "min")
    return _two(whole // 3600, 24, "d", "h")


def _two(number: int, large: int, large_unit: str, small_unit: str) -> str:
    high, low = divmod(number, large)
    return f"{high} {large_unit}" + (f" {low} {small_unit}" if low else "")


def size(number: float | None) -> str:
    """`40.0 GiB`, `160 KiB`."""
    if number is None:
        return UNKNOWN
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit in ("B", "KiB") else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.2f} TiB"


def time_text(at: float | None) -> str | None:
    """ISO 8601 in UTC, to the millisecond; None stays None, and what no calendar has is None."""
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return None


def clean(text: str | None) -> str | None:
    """Text as JSON can carry it: names from /proc can hold bytes that are not UTF-8, kept as lone surrogates."""
    return None if text is None else text.encode("utf-8", "replace").decode()
