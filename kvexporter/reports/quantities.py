"""Sizes and counts as people read and write them. Pure."""

from __future__ import annotations

import re

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SIZE = re.compile(r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,6})?) *(?P<unit>[KMGT]?)(?:i?B)?", re.IGNORECASE)


def size_words(size: float | None) -> str:
    """Bytes in the unit that fits, in powers of 1024; `?` for None."""
    if size is None:
        return "?"
    unit = 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:,.0f} {_UNITS[unit]}" if unit == 0 or abs(size) >= 100 else f"{size:,.2f} {_UNITS[unit]}"


def parse_size(text: str) -> int:
    """Read bytes, or a number with K, M, G or T (powers of 1024, as systemd has them; also GiB and GB).

    ValueError says what was expected.
    """
    found = _SIZE.fullmatch(text.strip())
    size = 0 if found is None else int(float(found["number"]) * 1024 ** "_KMGT".find(found["unit"].upper() or "_"))
    if size <= 0 or size >= 1 << 60:
        raise ValueError(f"expected bytes, or a size such as 512M or 16G, found {text!r}")
    return size


def share_words(share: float | None) -> str:
    """A share of 0 to 1 as a percentage, never rounded to all or nothing; `?` for None."""
    if share is None:
        return "?"
    percent = share * 100
    if 0 < percent < 0.1 or 99.9 < percent < 100:
        return "> 99.9 %" if percent > 50 else "< 0.1 %"
    return f"{percent:.1f} %"
