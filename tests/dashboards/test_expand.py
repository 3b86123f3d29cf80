"""Variables in queries become what Grafana makes of them; colours follow thresholds that may be missing."""

from __future__ import annotations

import json

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.expand import Chosen, expand, series_name
from dashboards.limits import falling, rising
from dashboards.words import shown, ticks


def test_variables_are_replaced_and_longer_names_first() -> None:
    chosen = Chosen(server="main", job="a|b", rate_interval=60, interval=15, span=3600)
    query = 'rate(x{job=~"$job", server="$server"}[$__rate_interval]) + increase(y[$__range]) + rate(z[$__interval])'
    assert expand(query, chosen) == ('rate(x{job=~"a|b", server="main"}[60s]) + increase(y[3600s]) + rate(z[15s])')


def test_chosen_values_are_escaped_as_in_a_string() -> None:
    chosen = Chosen(server='a"b\\c', instance=r"127\.0\.0\.1:9889")
    assert expand('x{server="$server", instance=~"$instance"}', chosen) == (
        r'x{server="a\"b\\c", instance=~"127\\.0\\.0\\.1:9889"}'
    )


def test_series_are_named_by_their_legend() -> None:
    labels = {"__name__": "x", "slot": "3", "server": "main"}
    assert series_name("slot {{slot}} of {{ server }}", labels) == "slot 3 of main"
    assert series_name("{{unknown}}", labels) == ""
    assert series_name("__auto", labels) == "slot=3, server=main"


def steps(config: object) -> list[tuple[float | None, str]]:
    found = json.loads(json.dumps(config, cls=JSONEncoder))["steps"]
    return [(step["value"], step["color"]) for step in found]


def test_limits_rise_and_leave_out_what_is_not_set() -> None:
    assert steps(rising((0.9, "red"), (0.8, "yellow")).build()) == [(None, "green"), (0.8, "yellow"), (0.9, "red")]
    assert steps(rising((None, "yellow"), (0.9, "red")).build()) == [(None, "green"), (0.9, "red")]
    assert steps(falling(60, 300).build()) == [(None, "red"), (60, "yellow"), (300, "green")]
    assert steps(falling(None, 300).build()) == [(None, "yellow"), (300, "green")]
    assert steps(falling(60, None).build()) == [(None, "red"), (60, "green")]
    assert steps(falling(None, None).build()) == [(None, "green")]


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0.607, "percentunit", "61%"),
        (0.089, "percentunit", "8.9%"),
        (1, "percentunit", "100%"),
        (16 * 2**20, "bytes", "16 MiB"),
        (512, "bytes", "512 B"),
        (262_144, "locale", "262,144"),
        (45, "s", "45 s"),
        (90, "s", "1.5 min"),
        (7200, "dtdurations", "2 h"),
        (4, "suffix:×", "4×"),  # noqa: RUF001
        (24_000, "short", "24 K"),
        (61, "celsius", "61 °C"),
    ],
)
def test_numbers_of_pictures_have_their_unit(value: float, unit: str, expected: str) -> None:
    assert shown(value, unit) == expected


def test_ticks_are_round_in_the_units_own_steps() -> None:
    assert ticks(0, 1, "percentunit") == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert ticks(0, 86 * 2**20, "bytes") == [place * 20 * 2**20 for place in range(5)]
    assert ticks(0, 600, "s") == [0, 120, 240, 360, 480, 600]
