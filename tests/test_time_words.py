"""Moments as people write them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from kvexporter.time_words import parse_moment

NOW = datetime(2026, 11, 30, 12, 30, 15, tzinfo=UTC).timestamp()


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A host of which local time is one or two hours ahead."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("now", "2026-11-30 12:30:15"),
        ("today", "2026-11-29 23:00:00"),
        ("yesterday", "2026-11-28 23:00:00"),
        ("Today", "2026-11-29 23:00:00"),
        ("2 hours ago", "2026-11-30 10:30:15"),
        ("1h 30m ago", "2026-11-30 11:00:15"),
        ("-90m", "2026-11-30 11:00:15"),
        ("-1 week", "2026-11-23 12:30:15"),
        ("+1min", "2026-11-30 12:31:15"),
        ("14:05", "2026-11-30 13:05:00"),
        ("9:05:30", "2026-11-30 08:05:30"),
        ("2026-11-30", "2026-11-29 23:00:00"),
        ("2026-11-30 14:05", "2026-11-30 13:05:00"),
        ("2026-07-01 14:05:09", "2026-07-01 12:05:09"),  # summer time
        ("2026-11-30 14:05 UTC", "2026-11-30 14:05:00"),
        ("2026-11-30T14:05:00Z", "2026-11-30 14:05:00"),
        ("2026-11-30T14:05:00+02:00", "2026-11-30 12:05:00"),
        ("@1796018480", "2026-11-30 06:01:20"),
    ],
)
def test_the_usual_forms_are_understood(text: str, utc: str) -> None:
    assert datetime.fromtimestamp(parse_moment(text, NOW), UTC).strftime("%Y-%m-%d %H:%M:%S") == utc


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "ago",
        "soon",
        "3 moons ago",
        "99:99",
        "2026-13-01",
        "@",
        "@12345678901234",
        "1h 5 ago",
        "5",
        "12:60",
        "\0",
    ],
)
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time such as 2026-11-30"):
        parse_moment(text, NOW)
