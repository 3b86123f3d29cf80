"""The trend of a sawtooth's peaks: seen in conversations that grow, and in nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterable

from kvexporter.peaks import MOST_PEAKS, PeakTrend

CAPACITY = 100_000
GUARANTEED = 25_000
TURN = 10.0


def turns(trend: PeakTrend, peaks: Iterable[int], *, largest: float = 0.5, start: float = 0.0) -> float:
    """Let the pool rise to each peak, hold it and fall to a quarter, in turns of ten seconds; the time afterwards."""
    at = start
    for peak in peaks:
        trend.observe(peak // 4, round(largest * peak), CAPACITY, at)
        trend.observe(peak, round(largest * peak), CAPACITY, at + 4)
        trend.observe(peak // 4, round(largest * peak), CAPACITY, at + 9)
        at += TURN
    return at


def test_peaks_that_rise_by_the_same_step_reach_the_capacity_when_a_ruler_says() -> None:
    """Twelve peaks from 10,000 on, 5,000 more each: the last one, 65,000, at 114 s; 35,000 more take seven turns."""
    trend = PeakTrend()
    now = turns(trend, range(10_000, 66_000, 5_000))

    left = trend.seconds_to_full(CAPACITY, GUARANTEED, now)

    assert left is not None
    assert abs((now + left) - (114 + 70)) < 0.01


def test_fewer_than_twelve_peaks_are_no_trend() -> None:
    trend = PeakTrend()
    now = turns(trend, range(30_000, 84_000, 5_000))
    assert trend.seconds_to_full(CAPACITY, GUARANTEED, now) is None
    now = turns(trend, (90_000,), start=now)
    assert trend.seconds_to_full(CAPACITY, GUARANTEED, now) is not None


def test_peaks_that_stay_the_same_or_fall_are_no_trend() -> None:
    for peaks in ([80_000] * 40, range(90_000, 10_000, -5_000)):
        trend = PeakTrend()
        now = turns(trend, peaks)
        assert trend.seconds_to_full(CAPACITY, GUARANTEED, now) is None


def test_as_long_as_no_request_is_larger_than_a_slots_guaranteed_window_there_is_no_forecast() -> None:
    """Four slots of 25,000 in a pool of 100,000: such requests cannot fill it, and their clients compact in time."""
    peaks = range(40_000, 96_000, 5_000)
    within, beyond = PeakTrend(), PeakTrend()
    now = turns(within, peaks, largest=0.25)
    turns(beyond, peaks, largest=0.3)

    assert within.seconds_to_full(CAPACITY, GUARANTEED, now) is None
    assert beyond.seconds_to_full(CAPACITY, GUARANTEED, now) is not None


def test_one_huge_request_among_equal_turns_is_no_trend() -> None:
    trend = PeakTrend()
    now = turns(trend, [*range(30_000, 31_100, 100), 80_000])
    assert trend.seconds_to_full(CAPACITY, GUARANTEED, now) is None


def test_a_rise_is_not_followed_further_ahead_than_half_as_long_again_as_it_was_watched() -> None:
    """Twelve peaks over 110 s, 1,000 more each: the capacity is 740 s away."""
    trend = PeakTrend()
    now = turns(trend, range(15_000, 27_000, 1_000), largest=0.9)
    assert trend.seconds_to_full(CAPACITY, 10_000, now) is None


def test_a_trend_is_forgotten_when_no_further_peak_comes() -> None:
    trend = PeakTrend()
    now = turns(trend, range(10_000, 66_000, 5_000))
    assert trend.seconds_to_full(CAPACITY, GUARANTEED, now + 60) is not None
    assert trend.seconds_to_full(CAPACITY, GUARANTEED, now + 120) is None


def test_a_rise_that_is_over_for_long_says_nothing_while_the_peaks_stay_below_it() -> None:
    trend = PeakTrend()
    now = turns(trend, [*range(10_000, 90_000, 10_000), *[70_000] * 12])
    assert trend.seconds_to_full(CAPACITY, GUARANTEED, now) is None


def test_a_rise_over_many_turns_is_seen_though_each_turn_differs() -> None:
    drawn = random.Random(5)
    trend = PeakTrend()
    now = turns(trend, [round(20_000 + 600 * turn * drawn.uniform(0.9, 1.1)) for turn in range(100)])

    left = trend.seconds_to_full(CAPACITY, GUARANTEED, now)

    assert left is not None
    assert 150 < left < 550  # 600 more a turn: from about 79,400, after 330 s


def test_memory_is_bounded_however_long_it_goes_on() -> None:
    trend = PeakTrend()
    turns(trend, (30_000 + 7 * turn % 50_000 for turn in range(5_000)))
    assert len(trend._peaks) <= MOST_PEAKS
