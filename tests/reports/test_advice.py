"""What a diagnosis advises: ways that mend what it found, cheapest first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvexporter.diagnosing.logbook import ServerStory
from kvexporter.reports.advice import GROWTH, Advice, advice_for, percentile, request_size_facts
from kvexporter.reports.diagnosis import diagnose
from kvexporter.reports.verdict import verdict_of
from tests.reports.test_verdict import FOUR_AGENTS
from tests.support.diagnosing import recorded, story_of

KIB_PER_TOKEN = 24 * 1024
"""Of the model on the operator's card: 24 KB a token."""


def advised(story: ServerStory) -> tuple[Advice, ...]:
    return advice_for(story, verdict_of(story))


def four_agents() -> ServerStory:
    return replace(
        story_of(FOUR_AGENTS), kv_bytes_per_token=float(KIB_PER_TOKEN), cache_type_k="f16", cache_type_v="f16"
    )


def test_the_first_way_costs_nothing_and_tells_the_clients() -> None:
    first = advised(four_agents())[0]
    assert first.flags == ()
    assert first.guaranteed_tokens == 65_536
    assert first.kv_bytes == 262_144 * KIB_PER_TOKEN
    assert first.why.startswith("change nothing at the server, and tell each client a window of 65,536 tokens")


def test_the_ways_that_the_operator_had_are_among_them() -> None:
    """Options B and C of the operator's list."""
    ways = {" ".join(advice.flags): advice for advice in advised(four_agents())}
    grown = "-c 1048576 -np 4 -kvu --kv-unified-per-slot 262144 -ctk {0} -ctv {0}"
    q8, f16 = ways[grown.format("q8_0") + " -fa on"], ways[grown.format("f16")]
    assert q8.guaranteed_tokens == f16.guaranteed_tokens == 262_144
    assert f16.kv_bytes == 1_048_576 * KIB_PER_TOKEN
    assert q8.kv_bytes == 1_048_576 * KIB_PER_TOKEN * 34 // 64


@pytest.mark.parametrize(("build", "told"), [("b5541", True), ("b6324", True), ("b6325", False), (None, False)])
def test_a_build_whose_flash_attention_takes_no_value_is_told_so(build: str | None, told: bool) -> None:
    notes = diagnose(replace(four_agents(), build=build)).notes
    assert (f"build {build} takes -fa without a value: leave the word after it away" in notes) == told


def test_ways_come_by_their_cost_and_none_is_overcommitted() -> None:
    ways = advised(four_agents())[1:]
    costs = [advice.kv_bytes for advice in ways]
    assert None not in costs
    assert costs == sorted(costs)  # type: ignore[type-var]  # none is None
    assert all(advice.guaranteed_tokens is not None and advice.guaranteed_tokens >= 159_069 for advice in ways)


def test_an_oversized_session_gets_windows_that_hold_it() -> None:
    story = story_of(recorded("b8635/prompt_too_long"))
    first, *ways = advised(story)
    assert first.flags == ()
    assert ways
    assert all(advice.guaranteed_tokens is not None and advice.guaranteed_tokens >= 5000 for advice in ways)


def test_sessions_that_were_cut_short_get_larger_windows_and_are_said_to_be_guessed() -> None:
    diagnosis = diagnose(story_of(recorded("b8635/split_per_slot_limit")))
    first, *ways = diagnosis.advice
    assert (first.flags, first.guaranteed_tokens) == ((), 1024)
    assert all(advice.guaranteed_tokens == GROWTH * 1024 for advice in ways)
    assert any("is a guess" in note for note in diagnosis.notes)


def test_requests_that_died_at_their_window_get_larger_ones_too() -> None:
    """This build says `context shift is disabled` and no size."""
    first, *ways = advised(story_of(recorded("b6666/uneven_overflow")))
    assert "would have fitted" not in first.why
    assert ways
    assert all(advice.guaranteed_tokens == GROWTH * 1024 for advice in ways)


@pytest.mark.parametrize("name", ["b11434/unified_fits", "b11434/api_key", "b8635/idle_purge"])
def test_where_nothing_suffered_nothing_is_advised(name: str) -> None:
    assert advised(story_of(recorded(name))) == ()


def test_without_the_slots_nothing_can_be_advised() -> None:
    assert advised(story_of(FOUR_AGENTS[1:])) == ()


def test_refused_requests_count_among_the_measured_ones() -> None:
    sizes = request_size_facts(story_of(recorded("b8635/prompt_too_long")))
    assert sizes.sizes == (349, 5000)
    assert sizes.largest == 5000


@pytest.mark.parametrize(
    ("values", "percent", "is_"),
    [((), 95, None), ((7,), 95, 7), (tuple(range(1, 101)), 95, 95), (tuple(range(1, 101)), 50, 50), ((1, 2, 3), 50, 2)],
)
def test_a_percentile_is_the_smallest_value_that_the_share_does_not_exceed(
    values: tuple[int, ...], percent: int, is_: int | None
) -> None:
    assert percentile(values, percent) == is_
