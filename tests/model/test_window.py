"""The peak of the last minute, whatever is set when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvexporter.window import PeakWindow


def test_a_value_counts_while_it_is_in_force_and_for_the_window_after() -> None:
    window = PeakWindow(60)
    window.set(0.9, 0)
    window.set(0.1, 10)

    assert window.peak(69) == 0.9
    assert window.peak(70.1) == 0.1


def test_a_peak_between_two_looks_is_not_missed() -> None:
    window = PeakWindow(60)
    for at, value in ((0, 0.2), (1, 0.95), (1.2, 0.3)):
        window.set(value, at)

    assert window.peak(60) == 0.95


def test_unknown_values_end_the_one_before_and_are_no_peak() -> None:
    window = PeakWindow(60)
    window.set(0.5, 0)
    window.set(None, 5)

    assert window.peak(30) == 0.5
    assert window.peak(66) is None


@given(
    st.lists(st.tuples(st.floats(1, 30), st.one_of(st.none(), st.integers(0, 10).map(lambda n: n / 10))), max_size=60),
    st.floats(0, 70),
)
def test_the_peak_is_that_of_the_whole_history(steps: list[tuple[float, float | None]], after: float) -> None:
    """With values at least a hundredth of the window apart, which is what is told apart."""
    window = PeakWindow(60)
    now = 0.0
    spans: list[tuple[float, float | None]] = []
    for pause, value in steps:
        now += pause
        if spans:
            spans[-1] = (now, spans[-1][1])
        spans.append((float("inf"), value))
        window.set(value, now)
    now += after

    expected = max((value for end, value in spans if value is not None and end >= now - 60), default=None)

    assert window.peak(now) == expected
