"""The verdict on an old log: one word and one sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvexporter.diagnosing.logbook import IncidentTotals, LogBook, ServerStory
from kvexporter.pool_geometry import Geometry
from kvexporter.reports.verdict import verdict_of
from kvexporter.snapshot import Counters
from tests.support.diagnosing import recorded, story_of

FOUR_AGENTS = b"""\
load_model: initializing, n_slots = 4, n_ctx_slot = 262144, kv_unified = 'true'
decode: failed to find free space in the KV cache, retrying with smaller batch size, off = 1329, n_batch = 1024
decode: failed to find a memory slot for batch of size 719
slot release: id 0 | stop processing: n_tokens = 159069
slot release: id 1 | stop processing: n_tokens = 23428
slot release: id 2 | stop processing: n_tokens = 77417
slot release: id 3 | stop processing: n_tokens = 2949
update_slots: decode() failed: Context size has been exceeded.
""".splitlines()

EMPTY = LogBook("test").story()
SHARED = Geometry(4, 4096, 4096, True, "journal")


def counted(story: ServerStory = EMPTY, **counts: object) -> ServerStory:
    return replace(story, counters=replace(story.counters, **counts))  # type: ignore[arg-type]


def died(pool: int = 0, slot: int = 0, *, each: int = 4) -> Counters:
    return Counters(incidents={"pool": pool, "slot": slot}, requests_failed={"pool": pool * each, "slot": slot})


def test_the_log_that_the_operator_pasted_is_a_shared_pool() -> None:
    verdict = verdict_of(story_of(FOUR_AGENTS))
    assert (verdict.code, verdict.found) == ("shared_pool", True)
    assert verdict.text == (
        "A shared pool: 4 slots are promised 262,144 tokens each out of one pool of 262,144, 4.00 times what there is, "
        "and 4 requests died in 1 incident when their sum outgrew it."
    )


def test_a_paste_without_the_start_is_a_shared_pool_too() -> None:
    verdict = verdict_of(story_of(FOUR_AGENTS[1:]))
    assert verdict.text == (
        "A shared pool: 4 requests died in 1 incident when what all slots held together outgrew it."
    )


@pytest.mark.parametrize("build", ["b6666", "b8635", "b11434"])
def test_a_request_that_is_larger_than_its_slot_is_one_oversized_session(build: str) -> None:
    verdict = verdict_of(story_of(recorded(f"{build}/prompt_too_long")))
    assert (verdict.code, verdict.found) == ("one_oversized_session", True)
    assert verdict.text.startswith("One oversized session: 1 request was larger than one slot may hold (")
    assert verdict.text.endswith("; nobody else was hurt.")


def test_several_of_them_are_told_with_the_largest() -> None:
    verdict = verdict_of(replace(EMPTY, counters=died(slot=3), geometry=SHARED, refused_sizes={5000: 2, 9000: 1}))
    assert verdict.text == (
        "One oversized session at a time: 3 requests were each larger than one slot may hold (4,096 tokens), the "
        "largest had 9,000; nobody else was hurt."
    )


def test_a_mix_is_both() -> None:
    verdict = verdict_of(story_of([*recorded("b11434/unified_overflow"), *recorded("b11434/prompt_too_long")]))
    assert (verdict.code, verdict.found) == ("both", True)
    assert verdict.text.startswith("Both: a shared pool: 4 slots are promised 4,096 tokens each")
    assert "; and one oversized session: 1 request was larger than one slot may hold (4,096 tokens)" in verdict.text


def test_a_request_that_fills_the_shared_pool_by_itself_is_one_oversized_session() -> None:
    story = replace(EMPTY, counters=died(pool=2, each=1), geometry=SHARED, totals=IncidentTotals(alone=2))
    assert verdict_of(story).code == "one_oversized_session"
    mixed = replace(EMPTY, counters=died(pool=3), geometry=SHARED, totals=IncidentTotals(alone=1))
    assert verdict_of(mixed).code == "both"


def test_sessions_that_were_cut_short_without_an_error_are_oversized() -> None:
    verdict = verdict_of(counted(replace(EMPTY, geometry=SHARED), answers_truncated=4, context_shifts=1))
    assert (verdict.code, verdict.found) == ("one_oversized_session", True)
    assert verdict.text == (
        "One oversized session: no request died, but 4 answers were cut off and the middle of a session was forgotten "
        "1 time where a session reached its own slot's window of 4,096 tokens."
    )


def test_requests_that_ended_well_are_no_context_problem() -> None:
    verdict = verdict_of(story_of(recorded("b11434/one_slot_q8")))
    assert (verdict.code, verdict.found) == ("not_a_context_problem", False)
    assert verdict.text == "Not a context problem: 2 requests ended and none died for want of context."


def test_a_pool_that_can_still_run_out_is_said_to() -> None:
    verdict = verdict_of(story_of(recorded("b11434/unified_fits")))
    assert verdict.code == "not_a_context_problem"
    assert verdict.text.endswith("which can still happen: more is promised than there is (4.00 times).")


def test_a_server_that_does_not_start_is_no_context_problem_but_something_is_wrong() -> None:
    verdict = verdict_of(counted(unit_exits={"127": 24}, unit_restarts=24))
    assert (verdict.code, verdict.found) == ("not_a_context_problem", True)
    assert verdict.text == (
        "Not a context problem: no request died for want of context, but the server itself ended badly 24 times: "
        "127 (24)."
    )


def test_a_kill_for_want_of_memory_is_told() -> None:
    verdict = verdict_of(counted(unit_exits={"SIGKILL": 1}, oom_kills=1))
    assert "killed for want of memory 1 time and the server itself ended badly 1 time: SIGKILL (1)" in verdict.text


def test_what_died_weighs_more_than_a_restart() -> None:
    assert verdict_of(replace(EMPTY, counters=replace(died(pool=1), unit_restarts=1))).code == "shared_pool"


@pytest.mark.parametrize(
    ("story", "found", "says"),
    [
        (EMPTY, False, "the log shows no request that ended, and no error"),
        (replace(EMPTY, verbosity=1), False, "at verbosity 1 the log shows no requests (start the server with -lv 3)"),
        (counted(error_lines=2), True, "2 lines name the error, and none says whose it was"),
        (counted(error_lines=1), True, "1 line names the error, and none says whose it was"),
    ],
)
def test_too_little_is_said_to_be_too_little(story: ServerStory, found: bool, says: str) -> None:
    verdict = verdict_of(story)
    assert (verdict.code, verdict.found) == ("too_little_to_tell", found)
    assert verdict.text == f"Too little to tell: {says}."
