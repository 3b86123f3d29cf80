from __future__ import annotations

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.measure import Row, percentile, table

REAL_SERVER = ("server-cost", "lead-time")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.real_server if name in REAL_SERVER else ()) for name in BENCHMARKS],
)
def test_a_benchmark_runs_in_its_short_form(name: str) -> None:
    rows = list(BENCHMARKS[name](short=True))
    assert rows
    assert all(row.what and row.value for row in rows)


def test_the_table_shows_a_missed_goal_as_such() -> None:
    shown = table([Row("time", "1.50", "1.0", met=False), Row("memory", "9 MiB")])
    assert "| time   | 1.50     | 1.0  | missed |" in shown


def test_a_percentile_is_the_smallest_value_that_the_share_does_not_exceed() -> None:
    hundred = [float(n) for n in range(1, 101)]
    assert percentile(hundred, 0.99) == 99
    assert percentile([7.0], 0.99) == 7
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2
