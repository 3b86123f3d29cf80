"""The host's clock is set while the exporter runs: backwards, forwards, and by years."""

from __future__ import annotations

from kvexporter.intake import take_answer
from kvexporter.server import Server
from tests.support.model import LogStory

SLOTS = b'[{"id":0,"id_task":7,"n_ctx":4096,"is_processing":true,"n_prompt_tokens":2048}]'
YEAR = 365 * 86400.0


def polled(server: Server, at: float) -> None:
    take_answer(server, "props", b'{"total_slots":1,"default_generation_settings":{"n_ctx":4096}}', at)
    take_answer(server, "slots", SLOTS, at)


def test_after_the_clock_was_set_back_what_is_polled_is_shown_again() -> None:
    server = Server("s")
    wrong = 1.9e9
    polled(server, wrong)
    right = wrong - 10 * YEAR
    server.tick(right)
    polled(server, right + 1)
    snapshot = server.snapshot(right + 2)
    assert snapshot.pool is not None
    assert snapshot.pool.fill_ratio == 0.5
    assert [slot.tokens for slot in snapshot.slots] == [2048]
    # And it still grows old: nothing more comes.
    assert server.snapshot(right + 60).pool is None


def test_after_the_clock_was_set_back_time_at_a_fill_is_counted_on() -> None:
    server = Server("s")
    polled(server, 1.9e9)
    server.tick(1.9e9 + 1)
    server.tick(1.5e9)
    server.tick(1.5e9 + 5)
    seconds = server.snapshot(1.5e9 + 5).fill_seconds
    assert seconds is not None
    assert seconds.count == 6


def test_a_leap_forward_is_not_time_that_has_passed() -> None:
    server = Server("s")
    polled(server, 100.0)
    server.tick(101.0)
    server.tick(101.0 + 50 * YEAR)
    server.tick(102.0 + 50 * YEAR)
    seconds = server.snapshot(102.0 + 50 * YEAR).fill_seconds
    assert seconds is not None
    assert seconds.count == 1, "after the leap what the poll told is too old to be counted"


def test_lines_older_than_the_answers_of_polls_do_not_set_the_clock_back() -> None:
    # As while a backlog is read: polls come in between with the time of now.
    server = Server("s")
    story = LogStory(server, at=1000.0)
    for round_number in range(5):
        polled(server, 10_000.0 + round_number)
        server.tick(10_000.5 + round_number)
        story.line("slot print_timing: id  0 | task 7 | prompt processing, n_tokens = 100, progress = 0.5")
    seconds = server.snapshot(10_005.0).fill_seconds
    assert seconds is not None
    assert seconds.count <= 5


def test_an_incident_that_is_open_when_the_clock_is_set_back_is_closed() -> None:
    story = LogStory(at=1.9e9)
    story.line("srv update_slots: Context size has been exceeded. off = 0, n_batch = 1, ret = 1")
    assert story.server.cascade_open
    story.server.tick(1.5e9, quiet=3.0)
    assert not story.server.cascade_open
    assert story.server.snapshot(1.5e9).counters.incidents["pool"] == 1
