"""Incidents as they are reconstructed from lines, whatever their order and however many are missing."""

from __future__ import annotations

import pytest

from kvexporter.snapshot import Incident
from tests.support.model import LogStory

START = "load_model: initializing, n_slots = 4, n_ctx_slot = 262144, kv_unified = 'true'"

PASTED = """
load_model: initializing, n_slots = 4, n_ctx_slot = 262144, kv_unified = 'true'
decode: failed to find free space in the KV cache, retrying with smaller batch size, off = 1329, n_batch = 1024
decode: failed to find a memory slot for batch of size 719
slot release: id 0 | stop processing: n_tokens = 159069
slot release: id 1 | stop processing: n_tokens = 23428
slot release: id 2 | stop processing: n_tokens = 77417
slot release: id 3 | stop processing: n_tokens = 2949
update_slots: decode() failed: Context size has been exceeded.
"""

UNPLACED = "0.01.224.330 W decode: failed to find a memory slot for batch of size {}"
RETRY = (
    "0.01.224.473 W srv        decode: failed to find free space in the KV cache, "
    "retrying with smaller batch size, off = {}, n_batch = {}, ret = 1"
)
ERROR = "0.01.228.950 E srv        decode: Context size has been exceeded. off = {}, n_batch = 1, ret = 1"
SEND = "0.01.228.989 E srv    send_error: task id = {}, error: Context size has been exceeded."
RELEASE = "0.01.231.056 I slot      release: id {:2} | task {} | stop processing: n_tokens = {}, truncated = 0"
LAUNCH = "0.00.472.095 I slot launch_slot_: id {:2} | task {} | processing task, is_child = 0"
ECHO = "0.01.236.251 E srv  update_slots: decode() failed: Context size has been exceeded."


def only_incident(story: LogStory) -> Incident:
    (incident,) = story.server.snapshot(story.at).incidents
    return incident


def test_the_operators_pasted_lines_give_the_operators_table() -> None:
    story = LogStory().lines(PASTED)

    incident = only_incident(story)

    assert {slot.slot: slot.tokens for slot in incident.slots} == {0: 159069, 1: 23428, 2: 77417, 3: 2949}
    shares = {slot.slot: round(100 * slot.share, 1) for slot in incident.slots if slot.share is not None}
    assert shares == {0: 60.7, 1: 8.9, 2: 29.5, 3: 1.1}
    assert incident.sum_tokens == 262_863
    assert incident.capacity is not None
    assert incident.capacity == 262_144
    assert round(100 * 262_863 / incident.capacity, 1) == 100.3
    assert incident.excess_tokens == 719
    assert incident.unplaced_batch_tokens == 719
    assert incident.adds_up is True
    assert incident.biggest_slot == 0
    assert incident.requests_failed == 4
    assert incident.cause == "pool"


def test_releases_after_the_error_give_the_same_incident_as_before_it() -> None:
    lines = [line for line in PASTED.splitlines() if line]
    echo = lines.pop()
    after = LogStory().lines("\n".join([*lines[:3], ERROR.format(1329), *lines[3:], echo]))
    before = LogStory().lines("\n".join([*lines, ERROR.format(1329)])).wait(3)

    for story in (after, before):
        incident = only_incident(story)
        assert incident.sum_tokens == 262_863
        assert incident.unplaced_batch_tokens == 719
        assert incident.requests_failed == 4


def test_the_same_cascade_is_one_incident_however_many_lines_name_it() -> None:
    story = LogStory().line(START)
    for slot in range(4):
        story.line(LAUNCH.format(slot, slot + 10))
    for size, batch in ((4, 2), (2, 1), (1, 1)):
        story.line(UNPLACED.format(size)).line(RETRY.format(0, batch))
    story.line(ERROR.format(0))
    for slot in range(4):
        story.line(SEND.format(slot + 10)).line(RELEASE.format(slot, slot + 10, 65_537))
    story.line(ECHO).wait(10)

    counters = story.server.snapshot(story.at).counters

    assert counters.incidents == {"pool": 1, "slot": 0}
    assert counters.requests_failed == {"pool": 4, "slot": 0}
    assert counters.error_lines == 6
    assert counters.recoveries == 0
    assert only_incident(story).excess_tokens == 4


def test_a_cascade_that_ends_in_work_is_a_recovery() -> None:
    story = LogStory().line(START).line(LAUNCH.format(0, 1))
    story.line(UNPLACED.format(1500)).line("W srv  try_clear_id: purging slot 2 with 919 tokens").line(
        RETRY.format(0, 2048)
    )
    story.line(RELEASE.format(0, 1, 1699)).line(LAUNCH.format(0, 2))

    counters = story.server.snapshot(story.at).counters

    assert counters.incidents == {"pool": 0, "slot": 0}
    assert (counters.recoveries, counters.purges, counters.purged_tokens) == (1, 1, 919)
    assert counters.pressure_lines == 1


def test_a_second_cascade_right_after_an_incident_is_an_incident_of_its_own() -> None:
    story = LogStory().line(START)
    for task in (1, 2):
        story.line(LAUNCH.format(0, task)).line(UNPLACED.format(1)).line(ERROR.format(0))
        story.line(SEND.format(task)).line(RELEASE.format(0, task, 262_145)).line(ECHO)

    assert story.server.snapshot(story.at).counters.incidents["pool"] == 2


def test_a_burst_without_echo_ends_with_the_next_sign_of_life_or_with_silence() -> None:
    for idle in (True, False):
        story = (
            LogStory().line(START).line(UNPLACED.format(1)).line(ERROR.format(0)).line(RELEASE.format(1, 7, 262_145))
        )
        assert story.server.snapshot(story.at).counters.incidents["pool"] == 0
        if idle:
            story.line("srv  update_slots: all slots are idle")
        else:
            story.wait(3)
        assert story.server.snapshot(story.at).counters.incidents["pool"] == 1


def test_errors_for_idle_slots_are_no_failed_requests() -> None:
    """Builds b5448 to b6924 print one for every slot, with a task long ended or with none."""
    story = LogStory().line(START).line(LAUNCH.format(0, 5)).line(LAUNCH.format(1, 6))
    story.line("decode: failed to find a memory slot for batch of size 1")
    story.line("srv  update_slots: Context size has been exceeded., i = 0, n_batch = 1, ret = 1")
    for slot, task in ((0, 5), (1, 6), (2, 3), (3, -1)):
        if slot < 2:
            story.line(
                f"slot      release: id {slot:2} | task {task} | stop processing: n_past = 131072, truncated = 0"
            )
        story.line(f"srv    send_error: task id = {task}, error: Context size has been exceeded.")
    story.wait(3)

    assert only_incident(story).requests_failed == 2
    assert story.server.snapshot(story.at).counters.error_lines == 5


def test_without_release_lines_the_failed_requests_own_lines_count() -> None:
    """Below verbosity 3 launches and releases are not logged, errors are."""
    story = LogStory().line(START).line(UNPLACED.format(1)).line(ERROR.format(0))
    story.line(SEND.format(10)).line(SEND.format(11)).line(SEND.format(12)).line(ECHO)

    incident = only_incident(story)

    assert incident.requests_failed == 3
    assert incident.sum_tokens is None
    assert incident.adds_up is None


def test_a_request_larger_than_its_slot_is_an_incident_of_that_slot_alone() -> None:
    story = LogStory().line(START).line(LAUNCH.format(3, 6))
    story.line(
        "0.00.345.596 E srv    send_error: task id = 6, error: request (5000 tokens) exceeds the available "
        "context size (4096 tokens), try increasing it"
    ).line(RELEASE.format(3, 6, 0))

    incident = only_incident(story)

    assert incident.cause == "slot"
    assert (incident.request_tokens, incident.excess_tokens, incident.biggest_slot) == (5000, 904, 3)
    assert story.server.snapshot(story.at).counters.requests_failed == {"pool": 0, "slot": 1}


@pytest.mark.parametrize(
    "text",
    [
        "srv    send_error: task id = 8, error: Invalid input batch.",
        "srv    send_error: task id = 8, error: Compute error.",
        "srv    send_error: task id = 8, error: the model produced output that does not match the expected format",
    ],
)
def test_other_failures_are_no_context_errors(text: str) -> None:
    story = LogStory().line(START).line(LAUNCH.format(0, 8)).line(text).wait(5)

    assert story.server.snapshot(story.at).counters.incidents == {"pool": 0, "slot": 0}


def test_a_server_that_dies_in_a_cascade_has_neither_recovered_nor_failed() -> None:
    story = LogStory().line(START).line(LAUNCH.format(0, 1)).line(UNPLACED.format(4)).line(RETRY.format(0, 2))
    story.line("0.00.000.953 I srv  llama_server: initializing ...").line(START).wait(100)

    counters = story.server.snapshot(story.at).counters

    assert counters.recoveries == 0
    assert counters.incidents["pool"] == 0
    assert counters.pressure_lines == 1


def test_numbers_that_do_not_add_up_are_said_not_to() -> None:
    story = LogStory().line(START).line(UNPLACED.format(4)).line(ERROR.format(0))
    story.line(RELEASE.format(0, 1, 100_000)).line(ECHO)

    incident = only_incident(story)

    assert incident.excess_tokens == 100_000 - 262_144
    assert incident.adds_up is False


def test_an_error_in_a_split_pool_is_of_the_slot() -> None:
    story = LogStory().line("load_model: initializing, n_slots = 4, n_ctx_slot = 65536, kv_unified = 'false'")
    story.line(UNPLACED.format(1)).line(ERROR.format(0)).line(RELEASE.format(2, 7, 65_537)).line(ECHO)

    assert only_incident(story).cause == "slot"


def test_a_lone_echo_counts_what_was_released_right_before_it() -> None:
    story = LogStory().line(START).line(RELEASE.format(0, 1, 200_000)).line(RELEASE.format(1, 2, 62_145)).line(ECHO)

    incident = only_incident(story)

    assert incident.requests_failed == 2
    assert incident.excess_tokens == 1


def test_the_victims_cache_is_gone_on_builds_that_drop_it() -> None:
    story = LogStory().line(START).line(LAUNCH.format(0, 1)).line(UNPLACED.format(1)).line(ERROR.format(0))
    story.line(SEND.format(1)).line(RELEASE.format(0, 1, 262_145)).line(ECHO)
    story.server.health_polled(story.at)

    pool = story.server.snapshot(story.at).pool

    assert pool is not None
    assert (pool.processing_tokens, pool.idle_tokens) == (0, 0)


TICK = "0.35.361.071 I slot print_timing: id  3 | task 2155 | n_gen =    109, tg =  35.23 t/s, tg_3s =  35.55 t/s"


def test_a_batch_of_which_parts_find_room_is_one_cascade_whatever_they_print() -> None:
    story = LogStory().line(START).line(LAUNCH.format(3, 2155)).line(LAUNCH.format(0, 1))
    story.line(UNPLACED.format(8)).line(RETRY.format(0, 4)).line(TICK)
    story.line(RELEASE.format(0, 1, 500))
    story.line(UNPLACED.format(4)).line(RETRY.format(4, 2)).line(UNPLACED.format(2)).line(RETRY.format(4, 1))
    story.line(UNPLACED.format(1)).line(ERROR.format(4)).line(SEND.format(2155))
    story.line(RELEASE.format(3, 2155, 262_148)).line(ECHO).wait(100)

    counters = story.server.snapshot(story.at).counters
    incident = only_incident(story)

    assert counters.recoveries == 0
    assert counters.incidents["pool"] == 1
    assert (incident.unplaced_batch_tokens, incident.excess_tokens) == (4, 4)
    assert incident.requests_failed == 1, "the other request ended as it should"


def test_a_failure_at_the_start_of_a_later_batch_is_another_cascade() -> None:
    story = LogStory().line(START).line(LAUNCH.format(3, 2155))
    story.line(UNPLACED.format(8)).line(RETRY.format(0, 4)).line(TICK)
    story.line(UNPLACED.format(1)).line(ERROR.format(0)).line(RELEASE.format(3, 2155, 262_145)).line(ECHO)

    counters = story.server.snapshot(story.at).counters

    assert (counters.recoveries, counters.incidents["pool"]) == (1, 1)


PURGE = "srv  try_clear_id: purging slot 2 with 919 tokens"


def test_a_recovery_by_purge_and_a_later_incident_are_two_though_nothing_is_printed_between() -> None:
    """b8635 prints nothing while it generates."""
    for pause in (10.0, 0.0):
        story = LogStory().line(START).line(LAUNCH.format(0, 5))
        story.line(UNPLACED.format(652)).line(PURGE).line(RETRY.format(0, 2048))
        if pause:
            story.wait(pause)
        for size, batch in ((2, 1024), (2, 512), (2, 2), (2, 1)):
            story.line(UNPLACED.format(size)).line(RETRY.format(0, batch))
        story.line(UNPLACED.format(1)).line(ERROR.format(0)).line(RELEASE.format(0, 5, 262_146)).line(ECHO)

        counters = story.server.snapshot(story.at).counters
        incident = only_incident(story)

        assert (counters.recoveries, counters.incidents["pool"]) == (1, 1), pause
        assert (incident.unplaced_batch_tokens, incident.adds_up) == (2, True), pause


def test_two_recoveries_in_a_row_are_two() -> None:
    story = LogStory().line(START).line(LAUNCH.format(0, 5))
    for _ in range(2):
        story.line(UNPLACED.format(652)).line(PURGE).line(RETRY.format(0, 2048)).wait(10)
    story.line(LAUNCH.format(1, 6))

    assert story.server.snapshot(story.at).counters.recoveries == 2


def test_a_larger_batch_at_the_same_place_is_a_later_batch() -> None:
    story = LogStory().line(START).line(LAUNCH.format(0, 5))
    story.line(UNPLACED.format(4)).line(RETRY.format(0, 2)).line(UNPLACED.format(2)).line(RETRY.format(0, 1))
    story.line(UNPLACED.format(3)).line(RETRY.format(0, 1024)).line(UNPLACED.format(3)).line(RETRY.format(0, 1))
    story.line(UNPLACED.format(1)).line(ERROR.format(0)).line(RELEASE.format(0, 5, 262_147)).line(ECHO)

    assert story.server.snapshot(story.at).counters.recoveries == 1
    assert only_incident(story).unplaced_batch_tokens == 3


def test_a_second_error_is_a_second_incident_in_grepped_logs() -> None:
    """Only the matching lines of b8635, twice."""
    story = LogStory().line(START)
    for first in (6, 20):
        story.line("srv  update_slots: Context size has been exceeded. i = 0, n_batch = 1, ret = 1")
        for task in range(first, first + 4):
            story.line(SEND.format(task))
    story.wait(5)

    counters = story.server.snapshot(story.at).counters

    assert (counters.incidents["pool"], counters.requests_failed["pool"]) == (2, 8)


def test_a_ladder_that_ends_in_another_error_is_neither_recovery_nor_incident() -> None:
    story = LogStory().line(START).line(LAUNCH.format(0, 8)).line(UNPLACED.format(4)).line(RETRY.format(0, 2))
    story.line("srv    send_error: task id = 8, error: Compute error.").wait(100)

    counters = story.server.snapshot(story.at).counters

    assert (counters.recoveries, counters.incidents["pool"]) == (0, 0)


def test_a_release_long_before_an_error_without_a_cascade_is_no_victim() -> None:
    story = LogStory().line(START).line(RELEASE.format(3, 1, 700)).wait(30)
    story.line(ERROR.format(0)).line(RELEASE.format(0, 5, 131_073)).line(RELEASE.format(1, 6, 131_073)).line(ECHO)

    incident = only_incident(story)

    assert incident.requests_failed == 2
    assert incident.excess_tokens == 2


def test_the_pasted_incident_leaves_no_cache_behind_since_only_clearing_builds_print_the_echo() -> None:
    story = LogStory().lines(PASTED)
    story.server.health_polled(story.at)

    pool = story.server.snapshot(story.at).pool

    assert pool is not None
    assert (pool.processing_tokens, pool.idle_tokens) == (0, 0)


CHILD = "0.00.472.095 I slot launch_slot_: id {:2} | task {} | processing task, is_child = 1"


def test_a_request_with_several_answers_dies_once() -> None:
    story = LogStory().line(START).line(LAUNCH.format(0, 10))
    for slot in (1, 2, 3):
        story.line(CHILD.format(slot, slot + 10))
    story.line(UNPLACED.format(4)).line(ERROR.format(0))
    for slot in range(4):
        story.line(f"0.01.229.075 W srv          stop: cancel task, id_task = {slot + 10}")
        story.line(SEND.format(slot + 10)).line(RELEASE.format(slot, slot + 10, 100_000))
    story.line(ECHO)

    counters = story.server.snapshot(story.at).counters
    incident = only_incident(story)

    assert counters.requests_failed["pool"] == 1
    assert counters.requests_cancelled == 0
    assert (incident.sum_tokens, incident.excess_tokens, incident.adds_up) == (None, None, None)
    assert len(incident.slots) == 4


def test_a_shared_prompt_of_known_size_is_counted_once() -> None:
    story = LogStory().line(START).line("slot launch_slot_: id  0 | task 10 | processing task, is_child = 0")
    story.line(
        "slot update_slots: id  0 | task 10 | new prompt, n_ctx_slot = 262144, n_keep = 0, task.n_tokens = 100000"
    )
    story.line("slot launch_slot_: id  1 | task 11 | processing task, is_child = 1")
    story.line(UNPLACED.format(2)).line(ERROR.format(0))
    story.line(RELEASE.format(0, 10, 181_073)).line(RELEASE.format(1, 11, 181_073)).line(ECHO)

    incident = only_incident(story)

    assert incident.sum_tokens == 262_146
    assert incident.adds_up is True


def test_a_client_who_gives_up_during_an_incident_is_still_counted() -> None:
    story = LogStory().line(START).line(LAUNCH.format(0, 5)).line(UNPLACED.format(1)).line(ERROR.format(0))
    story.line("0.01.229.075 W srv          stop: cancel task, id_task = 5")
    story.line("0.01.229.075 W srv          stop: cancel task, id_task = 99")
    story.line(SEND.format(5)).line(RELEASE.format(0, 5, 262_145)).line(ECHO)

    assert story.server.snapshot(story.at).counters.requests_cancelled == 1


def test_lines_of_an_incident_on_a_stalled_machine_are_of_that_incident() -> None:
    story = LogStory().line(START)
    for slot in range(2):
        story.line(LAUNCH.format(slot, slot + 10))
    story.line(UNPLACED.format(1)).line(ERROR.format(0)).wait(7)
    for slot in range(2):
        story.line(SEND.format(slot + 10)).line(RELEASE.format(slot, slot + 10, 131_073))
    story.line(ECHO).wait(100)

    counters = story.server.snapshot(story.at).counters

    assert (counters.incidents["pool"], counters.requests_failed["pool"]) == (1, 2)
