"""Which alerts hold: judged on the model's snapshots, fed with lines that real servers have printed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvexporter.alerting.conditions import OUTCOME_SECONDS, SETTLED_SECONDS, Held, pool_alerts
from kvexporter.llama.log import parse_line
from kvexporter.pool_geometry import Geometry
from kvexporter.rules.pool import CONTEXT_EXCEEDED
from kvexporter.rules.thresholds import INCIDENT_WINDOW, PRESSURE_WINDOW
from kvexporter.server import Server
from kvexporter.snapshot import PoolSnapshot, ServerSnapshot
from tests.support.model import LogStory
from tests.support.paths import RECORDINGS
from tests.support.snapshots import FOUR_AGENTS, FULL

START = """
    0.00.004.876 I srv  llama_server: initializing ...
    0.00.006.233 I cmn  common_param: common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)
    0.00.011.663 I srv    load_model: loading model 'tiny.gguf'
    0.00.019.302 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'
    0.00.021.174 I srv  llama_server: model loaded
    0.00.021.196 I srv  llama_server: listening on http://127.0.0.1:18631
    0.00.472.095 I slot launch_slot_: id  3 | task 6 | processing task, is_child = 0
    0.00.509.596 I slot launch_slot_: id  2 | task 9 | processing task, is_child = 0
"""
FAILING = """
    0.01.228.477 W decode: failed to find a memory slot for batch of size 4
    0.01.228.538 W srv        decode: failed to find free space in the KV cache, retrying with smaller batch size, off = 0, n_batch = 2, ret = 1
"""  # noqa: E501 - as the server prints it
ERROR = "0.01.228.950 E srv        decode: Context size has been exceeded. off = 0, n_batch = 1, ret = 1"
RELEASES = """
    0.01.231.056 I slot      release: id  3 | task 6 | stop processing: n_tokens = 2049, truncated = 0
    0.01.233.728 I slot      release: id  2 | task 9 | stop processing: n_tokens = 2049, truncated = 0
"""
ECHO = "0.01.236.251 E srv  update_slots: decode() failed: Context size has been exceeded."


def holding(server: ServerSnapshot, at: float) -> list[str]:
    return [held.rule.name for held in pool_alerts(server, at)]


def told(story: LogStory, after: float = 0.0) -> list[str]:
    at = story.at + after
    return holding(story.server.snapshot(at), at)


def page(story: LogStory, after: float = 0.0) -> Held:
    at = story.at + after
    (found,) = (held for held in pool_alerts(story.server.snapshot(at), at) if held.rule is CONTEXT_EXCEEDED)
    return found


def recorded(name: str) -> LogStory:
    story = LogStory(Server("it"))
    for line in (RECORDINGS / name / "server.log").read_bytes().splitlines():
        story.at += 0.01
        parsed = parse_line(line)
        if parsed is not None:
            story.server.line(parsed, story.at)
    return story


# ---- requests that died ----------------------------------------------------------------------------------------------


def test_the_page_holds_as_soon_as_the_error_was_read_though_the_incident_is_not_closed() -> None:
    """Builds without an echo close it by half a minute of silence; the alert must not wait for that."""
    story = LogStory().lines(START + FAILING).line(ERROR).lines(RELEASES)
    assert story.server.cascade_open

    held = page(story, after=2 * SETTLED_SECONDS)

    assert held.incident is not None
    assert {slot.slot: slot.tokens for slot in held.incident.slots} == {3: 2049, 2: 2049}


def test_an_incident_that_closes_later_is_the_same_news() -> None:
    story = LogStory().lines(START + FAILING).line(ERROR).lines(RELEASES)
    before = page(story, after=1)
    story.line(ECHO)
    assert not story.server.cascade_open

    after = page(story, after=1)

    assert (after.news, after.since) == (before.news, before.since)
    assert after.incident is not None
    assert after.incident.requests_failed == 2


def test_a_second_incident_is_news() -> None:
    story = LogStory().lines(START + FAILING).line(ERROR).lines(RELEASES).line(ECHO)
    first = page(story)
    story.wait(30).line("0.40.509.596 I slot launch_slot_: id  2 | task 19 | processing task, is_child = 0")
    story.lines(FAILING).line(ERROR).line(ECHO)
    second = page(story)
    assert second.news != first.news


@pytest.mark.parametrize(
    ("after", "holds"), [(0.0, True), (INCIDENT_WINDOW - 1, True), (INCIDENT_WINDOW + 1, False), (86_400.0, False)]
)
def test_an_incident_is_told_for_the_rules_window_and_an_old_one_never(after: float, holds: bool) -> None:
    server = replace(FULL, pool=None)
    assert ("LlamaContextExceeded" in holding(server, FOUR_AGENTS.ended + after)) is holds


def test_a_journal_whose_clock_is_ahead_gives_no_alert_for_ever() -> None:
    server = replace(FULL, pool=None)
    assert "LlamaContextExceeded" in holding(server, FOUR_AGENTS.ended - 5)
    assert "LlamaContextExceeded" not in holding(server, FOUR_AGENTS.ended - INCIDENT_WINDOW - 1)


def test_one_request_beyond_its_slot_is_a_warning_of_its_own() -> None:
    story = recorded("b11434/prompt_too_long")
    assert told(story) == ["LlamaRequestTooLong"]


@pytest.mark.parametrize("name", ["b11434/unified_overflow", "b8635/unified_overflow", "agents-b11434"])
def test_each_recorded_overflow_is_a_page(name: str) -> None:
    assert "LlamaContextExceeded" in told(recorded(name), after=1.0)


@pytest.mark.parametrize("name", ["b11434/unified_fits", "b6666/unified_overflow", "b11434/split_three_slots"])
def test_recorded_runs_in_which_nobody_died_page_nobody(name: str) -> None:
    """The old unified pool gave each slot its part only, and could not overflow."""
    assert not {"LlamaContextExceeded", "LlamaPoolAlmostFull"} & set(told(recorded(name), after=1.0))


# ---- pressure --------------------------------------------------------------------------------------------------------


def test_batches_without_room_are_pressure_while_the_outcome_is_open() -> None:
    story = LogStory().lines(START + FAILING)
    assert told(story) == [], "it is known in a moment"
    assert told(story, after=OUTCOME_SECONDS) == ["LlamaPoolPressure"]


def test_a_recovery_is_pressure_for_the_rules_window() -> None:
    story = recorded("b8635/idle_purge")
    assert story.server.snapshot(story.at).counters.pressure_lines > 0
    assert "LlamaPoolPressure" in told(story)
    assert told(story, after=PRESSURE_WINDOW + 1) == []


def test_pressure_that_ended_in_the_error_is_the_error_s() -> None:
    story = LogStory().lines(START + FAILING).line(ERROR).lines(RELEASES).line(ECHO)
    assert "LlamaContextExceeded" in told(story, after=OUTCOME_SECONDS)
    assert "LlamaPoolPressure" not in told(story, after=OUTCOME_SECONDS)


# ---- filling up ------------------------------------------------------------------------------------------------------


def pool(**values: float) -> PoolSnapshot:
    known: dict[str, float | None] = {"fill_ratio": 0.5, "resident_ratio": 0.5, "fill_peak_ratio": 0.5, **values}
    return PoolSnapshot(processing_tokens=2048, idle_tokens=0, **known)  # type: ignore[arg-type]


SHARED = Geometry(slots=4, slot_context=4096, capacity=4096, shared=True, source="journal")
SPLIT = Geometry(slots=4, slot_context=1024, capacity=4096, shared=False, source="journal")


@pytest.mark.parametrize(
    ("geometry", "values", "expected"),
    [
        (SHARED, pool(), []),
        (SHARED, pool(fill_peak_ratio=0.995), ["LlamaPoolFillingUp"]),
        (SHARED, pool(committed_ratio=0.98, seconds_to_full=20.0), ["LlamaPoolFillingUp"]),
        (
            SHARED,
            pool(fill_ratio=0.9, committed_ratio=0.98, seconds_to_full=20.0),
            ["LlamaPoolAlmostFull", "LlamaPoolFillingUp"],
        ),
        (SPLIT, pool(fill_ratio=1.0, fill_peak_ratio=1.0, demand_ratio=1.0), []),
        (Geometry(), pool(fill_ratio=1.0, fill_peak_ratio=1.0), []),
    ],
    ids=["half full", "was full", "full if nothing ends", "about to be full", "cannot overflow", "of unknown shape"],
)
def test_a_pool_that_can_overflow_is_warned_about_and_no_other(
    geometry: Geometry, values: PoolSnapshot, expected: list[str]
) -> None:
    assert holding(ServerSnapshot("it", geometry=geometry, pool=values), 1000.0) == expected


def test_of_a_server_that_is_not_known_nothing_holds() -> None:
    assert holding(ServerSnapshot("it", geometry=SHARED), 1000.0) == []
