"""The last hour's fill: the highest of each 15 seconds, bounded, and honest about what was not known."""

from __future__ import annotations

import time

from hypothesis import example, given
from hypothesis import strategies as st

from kvexporter.fill_history import POINTS, STEP_SECONDS, FillHistory
from kvexporter.replay import run_replay
from kvexporter.server import Server
from tests.support.model import LogStory
from tests.support.paths import RECORDINGS

HOUR = POINTS * STEP_SECONDS


def test_a_point_is_the_highest_value_in_force_in_its_fifteen_seconds() -> None:
    history = FillHistory()
    history.set(0.2, 30.0)
    history.set(0.9, 34.0)
    history.set(0.3, 34.5)
    history.advance(46.0)
    history.set(0.1, 50.0)

    # The value that was in force when a stretch began counts in it.
    assert history.points(50.0) == ((30.0, 0.9), (45.0, 0.3))


def test_a_value_that_holds_has_a_point_for_every_stretch() -> None:
    history = FillHistory()
    history.set(0.5, 0.0)
    history.advance(61.0)

    assert history.points(61.0) == ((0.0, 0.5), (15.0, 0.5), (30.0, 0.5), (45.0, 0.5), (60.0, 0.5))


def test_a_stretch_in_which_nothing_was_known_has_no_point() -> None:
    history = FillHistory()
    history.set(0.5, 0.0)
    history.set(None, 1.0)
    history.advance(31.0)
    history.set(0.6, 32.0)

    assert history.points(32.0) == ((0.0, 0.5), (30.0, 0.6))


def test_only_the_last_hour_is_kept() -> None:
    history = FillHistory()
    history.set(0.5, 0.0)
    history.advance(10 * HOUR)
    history.set(0.7, 10 * HOUR + 1)

    points = history.points(10 * HOUR + 1)
    assert len(points) == POINTS
    assert points[0][0] > 9 * HOUR
    assert points[-1] == (10 * HOUR, 0.7)
    assert history.points(12 * HOUR) == ()


def test_after_the_clock_was_set_back_nothing_lies_in_the_future() -> None:
    history = FillHistory()
    history.set(0.5, 1000.0)
    history.advance(2000.0)
    history.restart(1200.0)
    history.advance(1230.0)

    points = history.points(1230.0)
    assert [start for start, _ in points] == sorted({start for start, _ in points})
    assert points[-1] == (1230.0, 0.5)


@example([("set", -1.0, 0.0), ("set", 0.0, None)])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["set", "advance", "restart"]),
            st.floats(-100, 100_000),
            st.none() | st.floats(0, 2),
        ),
        max_size=60,
    )
)
def test_points_are_bounded_and_rise_in_time_whatever_the_clock_does(
    steps: list[tuple[str, float, float | None]],
) -> None:
    history = FillHistory()
    for kind, at, value in steps:
        if kind == "set":
            history.set(value, at)
        elif kind == "advance":
            history.advance(at)
        else:
            history.restart(at)
        points = history.points(at)
        assert len(points) <= POINTS + 1
        assert [start for start, _ in points] == sorted({start for start, _ in points})


def test_a_long_silence_costs_no_more_than_an_hour_of_it() -> None:
    history = FillHistory()
    history.set(0.5, 0.0)
    began = time.process_time()
    history.advance(1e9)
    assert time.process_time() - began < 5.0  # a point for each of 66 million stretches would take longer
    assert len(history.points(1e9)) <= POINTS + 1


def test_a_recorded_incident_is_a_full_pool_in_the_hour_before_its_end() -> None:
    snapshot = run_replay(directory=RECORDINGS / "replay-b11434-full")
    (server,) = snapshot.servers
    (incident,) = server.incidents

    highest = dict(server.fill_history)
    assert highest[incident.ended // STEP_SECONDS * STEP_SECONDS] == 1.0
    # 13 minutes, in which the pool grew to its end: by the incident it had been filled to the last token.
    assert max(highest.values()) == 1.0
    assert 13 * 60 / STEP_SECONDS - 4 <= len(highest) <= 14 * 60 / STEP_SECONDS


def test_a_server_of_which_nothing_is_known_has_no_history() -> None:
    story = LogStory(Server("quiet"))
    story.wait(100.0)
    assert story.server.snapshot(story.at).fill_history == ()
