"""Steps that come again and again fall on the same moments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvexporter.paces import until_next


@pytest.mark.parametrize(
    ("interval", "now", "left"),
    [(30.0, 1000.0, 20.0), (30.0, 990.0, 30.0), (15.0, 1000.0, 5.0), (30.0, 1019.0, 31.0), (0.5, 7.25, 0.25)],
)
def test_the_next_step_is_due_at_a_multiple_of_its_interval(interval: float, now: float, left: float) -> None:
    assert until_next(interval, now) == pytest.approx(left)


def test_what_is_due_at_once_is_not_put_off() -> None:
    assert until_next(0.0, 1000.1) == 0.0


@given(st.floats(0.01, 3600.0), st.floats(0.0, 1e7))
def test_two_steps_are_never_much_less_nor_more_than_an_interval_apart(interval: float, now: float) -> None:
    assert 0.099 * interval <= until_next(interval, now) <= 1.101 * interval
