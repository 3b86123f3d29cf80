"""Moments as people write them for `--since` and `--until`: the forms of journalctl that are used. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

EXPECTED = (
    "expected a time such as 2026-11-30, '2026-11-30 14:05', 14:05, now, today, yesterday, '2 hours ago', -90m or "
    "@1796018480"
)

_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86_400),
}
_DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1}
_PART = re.compile(r" *(\d{1,9}) *([a-z]+)")
_UNIX = re.compile(r"@(\d{1,11}(?:\.\d{1,6})?)")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d(?:\.\d{1,6})?))?")
_ZULU = re.compile(r" UTC\Z|Z\Z")


def parse_moment(text: str, now: float) -> float:
    """Give unix seconds; `now` too. Times without a zone are this host's local ones.

    Raises ValueError that says what was expected.
    """
    words = text.strip().lower()
    try:
        if words == "now":
            return now
        if (days := _DAYS.get(words)) is not None:
            return (_midnight(now) + timedelta(days=days)).timestamp()
        if (unix := _UNIX.fullmatch(words)) is not None:
            return float(unix[1])
        if (clock := _CLOCK.fullmatch(words)) is not None:
            hours, minutes, seconds = int(clock[1]), int(clock[2]), float(clock[3] or 0)
            if hours < 24 and minutes < 60 and seconds < 60:
                # Not added as a duration: on the day that the clock is changed that would be another time.
                return _midnight(now).replace(hour=hours, minute=minutes).timestamp() + seconds
        elif words.endswith(" ago") or words.startswith(("-", "+")):
            sign = 1 if words.startswith("+") else -1
            return now + sign * _duration(words.removesuffix(" ago").lstrip("+-"))
        else:
            moment = datetime.fromisoformat(_ZULU.sub("+00:00", text.strip()))
            return moment.timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError(f"{EXPECTED}, found {text!r}")


def _duration(words: str) -> int:
    """Seconds of `2 hours` or `1h30m`. Raises ValueError."""
    total, position = 0, 0
    while position < len(words):
        part = _PART.match(words, position)
        if part is None or part[2] not in _UNITS:
            raise ValueError
        total += int(part[1]) * _UNITS[part[2]]
        position = part.end()
    if not position:
        raise ValueError
    return total


def _midnight(now: float) -> datetime:
    return datetime.fromtimestamp(now).astimezone().replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
