"""The books of a diagnosis: the daemon's own numbers, and what it does not remember."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from kvexporter.diagnosing.logbook import LogBook, filled_alone
from kvexporter.facts import LinesSuppressed, UnitExited, UnitRestartScheduled
from kvexporter.llama.log import parse_line
from kvexporter.replay import run_replay
from kvexporter.snapshot import Incident, IncidentSlot
from tests.support.diagnosing import EXPECTED, recorded, story_of
from tests.support.paths import RECORDINGS

REFUSED = (
    b"srv    send_error: task id = 6, error: request (5000 tokens) exceeds the available context size (4096 tokens)"
)


def timeless(incidents: Iterable[Incident]) -> list[Incident]:
    return [replace(incident, started=0, ended=0, demand_above_seconds=None) for incident in incidents]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_diagnosis_has_the_daemons_own_numbers(name: str) -> None:
    (server,) = run_replay(log_file=RECORDINGS / name / "server.log").servers

    story = story_of(recorded(name))

    assert replace(story.counters, http_requests={}) == replace(server.counters, http_requests={})
    assert story.geometry == server.geometry
    assert (story.build, story.model) == (server.build, server.model)
    assert timeless(story.incidents) == timeless(server.incidents)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_size_of_a_request_is_kept(name: str) -> None:
    released = [
        int(found[1])
        for line in recorded(name)
        if (found := re.search(rb"stop processing: n_(?:tokens|past) = (\d+)", line)) is not None
    ]

    story = story_of(recorded(name))

    assert sorted(size for size, number in story.request_sizes.items() for _ in range(number)) == sorted(
        filter(None, released)
    )
    assert story.requests_ended == len(released)


def test_incidents_beyond_those_that_the_daemon_keeps_are_counted_and_the_latest_shown() -> None:
    book = LogBook("test", last=3)
    for number in range(1000):
        line = parse_line(REFUSED.replace(b"id = 6", b"id = %d" % number).replace(b"5000", b"%d" % (5000 + number)))
        assert line is not None
        book.line(line, float(number))
    book.conclude()

    story = book.story()

    assert story.counters.incidents == {"pool": 0, "slot": 1000}
    assert [incident.request_tokens for incident in story.incidents] == [5997, 5998, 5999]
    assert story.refused_sizes == {5000 + number: 1 for number in range(1000)}


def test_more_ended_requests_than_the_books_keep_are_all_counted() -> None:
    book = LogBook("test")
    for number in range(25_000):
        line = parse_line(
            b"slot      release: id  0 | task %d | stop processing: n_tokens = %d, truncated = 0"
            % (number, number % 7 + 1)
        )
        assert line is not None
        book.line(line, float(number))
    book.conclude()

    assert sum(book.story().request_sizes.values()) == 25_000


def test_what_all_incidents_have_in_common_is_counted() -> None:
    totals = story_of([*recorded("b11434/uneven_overflow"), *recorded("b11434/unified_overflow")], last=1).totals

    assert totals.adding_up == 2
    assert totals.not_adding_up == 0
    assert totals.biggest == {3: 2}  # 2,483 and 1,026 tokens


def test_a_pool_that_was_cut_anew_is_told_with_what_has_happened_since() -> None:
    story = story_of([*recorded("b11434/unified_overflow"), *recorded("b11434/per_slot_cap_auto_pool")])

    assert story.starts == 2
    assert story.shape_changed is not None
    assert story.geometry.slot_context == 1024
    assert story.totals.since_shape == 0
    assert story.counters.incidents["pool"] == 1


def test_a_restart_with_the_same_pool_is_no_change() -> None:
    assert story_of([*recorded("b11434/unified_fits"), *recorded("b11434/unified_overflow")]).shape_changed is None


def test_a_log_that_ends_within_a_start_tells_the_pool_as_it_was_before() -> None:
    beginning = [line for line in recorded("b5541/one_slot_q8") if b"initializing slots" not in line][:40]
    assert story_of([*recorded("b11434/unified_fits"), *beginning]).geometry.slots == 4


def test_a_pool_that_nothing_was_counted_against_is_told_too_when_the_log_ends_within_the_next_start() -> None:
    story = story_of(
        [
            b"srv    load_model: initializing, n_slots = 3, n_ctx_slot = 4096, kv_unified = 'true'",
            b"srv    load_model: loading model 'tiny.gguf'",
        ]
    )
    assert (story.geometry.slots, story.geometry.slot_context) == (3, 4096)


def test_lines_from_before_tell_the_pool_and_are_not_counted() -> None:
    book = LogBook("test")
    for line in recorded("b11434/unified_overflow"):
        parsed = parse_line(line)
        if parsed is not None and parsed.event is not None:
            book.preface(parsed.event)
    story = book.story()

    assert story.geometry.capacity == 4096
    assert story.counters.incidents == {"pool": 0, "slot": 0}
    assert (story.starts, story.requests_ended) == (0, 0)


def test_restarts_exits_and_dropped_lines_are_counted() -> None:
    book = LogBook("llama", "llama.service")
    for _ in range(24):
        book.unit_event(UnitExited("exited", "127"), 10.0)
        book.unit_event(UnitRestartScheduled(None), 10.0)
    book.unit_event(LinesSuppressed(300), 11.0)

    counters = book.story().counters

    assert book.told
    assert counters.unit_exits == {"127": 24}
    assert counters.unit_restarts == 24
    assert counters.suppressed_lines == 300


def test_restarts_of_what_is_no_unit_are_unknown() -> None:
    assert story_of(recorded("b11434/unified_fits")).counters.unit_restarts is None


@pytest.mark.parametrize(
    ("slots", "failed", "excess", "alone"),
    [
        ((IncidentSlot(0, 1, 4097, 1.0),), 1, 1, True),
        ((IncidentSlot(0, 1, 900, 0.2),), 1, -3196, False),  # of a paste in which the other slots are missing
        ((IncidentSlot(0, 1, 2050, 0.5), IncidentSlot(1, 2, 2050, 0.5)), 2, 4, False),
        ((IncidentSlot(0, 1, None, None),), 1, None, False),
    ],
)
def test_one_request_that_fills_the_pool_by_itself_is_told_from_several_that_share_it(
    slots: tuple[IncidentSlot, ...], failed: int, excess: int | None, alone: bool
) -> None:
    incident = Incident("pool", 1.0, 1.0, slots, failed, 4096, None, excess, None, None, 0)
    assert filled_alone(incident) is alone
