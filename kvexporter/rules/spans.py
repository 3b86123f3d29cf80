"""Times as rules and texts write them. Pure."""

from __future__ import annotations


def span(seconds: int) -> str:
    """Give a time as Prometheus writes it: `90s`, `10m`, `7d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def in_words(seconds: int) -> str:
    """Give a time in words: `90 seconds`, `10 minutes`, `1 day`."""
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size} {unit}{'' if seconds == size else 's'}"
    return f"{seconds} seconds"
