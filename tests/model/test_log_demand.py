"""Since when the log knew that the running requests need more than the pool, as an incident's record has it."""

from __future__ import annotations

import re

import msgspec
import pytest

from kvexporter.llama.log import parse_line
from kvexporter.log_demand import NEARLY_ALL, TOLD_BY, LogDemand
from kvexporter.pool_geometry import Geometry
from kvexporter.replay import replay
from kvexporter.rules.thresholds import POOL_WARN
from kvexporter.server_memory import ServerMemory
from kvexporter.snapshot import Incident
from tests.support.model import STEP, LogStory
from tests.support.paths import RECORDINGS

START = "srv load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'"
LAUNCH = "slot launch_slot_: id {0:2} | task {1} | processing task, is_child = {2}"
PROMPT = "slot update_slots: id {0:2} | task {1} | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = {2}"
PROGRESS = (
    "slot print_timing: id {0:2} | task {1} | prompt processing, n_tokens = {2:6}, progress = {3}, t = 3.5 s / 9 t"
)
ANSWER = "slot print_timing: id {0:2} | task {1} | n_gen = {2:6}, tg = 10.00 t/s, tg_3s = 10.00 t/s"
RELEASE = "slot      release: id {0:2} | task {1} | stop processing: n_tokens = {2}, truncated = 0"
UNPLACED = "decode: failed to find a memory slot for batch of size 4"
ERROR = "srv        decode: Context size has been exceeded. off = 0, n_batch = 1, ret = 1"
ECHO = "srv  update_slots: decode() failed: Context size has been exceeded."
POOL = Geometry(slots=4, slot_context=4096, capacity=4096, shared=True)


def two_prompts(first: int, second: int) -> LogStory:
    """Requests in slots 0 and 1 whose prompts' sizes are logged."""
    story = LogStory().line(START)
    for slot, size in enumerate((first, second)):
        story.line(LAUNCH.format(slot, slot + 1, 0)).line(PROMPT.format(slot, slot + 1, size))
    return story


def failed(story: LogStory) -> Incident:
    story.line(UNPLACED).line(ERROR).line(RELEASE.format(0, 1, 2048)).line(RELEASE.format(1, 2, 2052)).line(ECHO)
    return story.server.snapshot(story.at).incidents[-1]


def test_it_counts_from_the_line_that_told_the_prompt_which_fills_the_pool() -> None:
    incident = failed(two_prompts(3000, 1500).wait(90))
    assert incident.demand_above_seconds == pytest.approx(90 + STEP)


def test_prompts_that_fit_were_never_known_to_need_it() -> None:
    assert failed(two_prompts(2000, 1500).wait(90)).demand_above_seconds is None


def test_answers_count_as_far_as_the_log_tells_them() -> None:
    """97 % of 4,096 are 3,973.1: 3,000 + 870 of prompts and 103 stored tokens of the first answer are just below."""
    story = two_prompts(3000, 870).wait(50).line(ANSWER.format(0, 1, 104)).wait(20).line(ANSWER.format(0, 1, 105))
    assert failed(story.wait(30)).demand_above_seconds == pytest.approx(30 + STEP)


def test_a_request_that_ended_in_time_begins_it_anew() -> None:
    story = two_prompts(3000, 1500).wait(90).line(RELEASE.format(1, 2, 1600)).wait(10)
    story.line(LAUNCH.format(1, 3, 0)).line(PROMPT.format(1, 3, 1500)).wait(5)
    assert failed(story).demand_above_seconds == pytest.approx(5 + STEP)


def test_the_wobble_of_rounded_progress_does_not_begin_it_anew() -> None:
    """2,000 at 0.65 are about 3,077 in all, 2,400 at 0.79 about 3,042: with 1,020 that is 4,097 and then 4,061."""
    story = LogStory().line(START).line(LAUNCH.format(1, 2, 0)).line(PROMPT.format(1, 2, 1020))
    story.line(LAUNCH.format(0, 1, 0)).line(PROGRESS.format(0, 1, 2000, "0.65")).wait(40)
    story.line(PROGRESS.format(0, 1, 2400, "0.79")).wait(20)
    assert failed(story).demand_above_seconds == pytest.approx(60 + 2 * STEP)


def test_a_split_pool_has_no_demand_above_it() -> None:
    story = two_prompts(3000, 1500)
    split = LogStory().line(START.replace("true", "false").replace("4096", "1024"))
    for slot, size in enumerate((1000, 1000)):
        split.line(LAUNCH.format(slot, slot + 1, 0)).line(PROMPT.format(slot, slot + 1, size))
    assert failed(split.wait(10)).demand_above_seconds is None
    assert failed(story.wait(10)).demand_above_seconds is not None


def test_a_prompt_shared_by_several_answers_counts_once() -> None:
    story = LogStory().line(START)
    for slot in range(3):
        story.line(LAUNCH.format(slot, 10 + slot, int(slot > 0)))
    story.line(PROMPT.format(0, 10, 2000)).wait(30)
    assert story.server.memory().ledger.demand.total == 2000
    story.line(RELEASE.format(0, 10, 2100))
    assert story.server.memory().ledger.demand.total == 2000, "another answer still holds it"


def test_the_full_size_replays_log_comes_within_one_per_cent_of_the_pool_at_97_seconds() -> None:
    """It is silent of slot 0, whose 2,000 tokens of prompt are read before the log tells progress."""
    lines = (RECORDINGS / "replay-b11434-full" / "server.log").read_bytes().splitlines()
    upto = next(number for number, line in enumerate(lines) if b"progress = 0.09" in line)
    assert lines[upto].startswith(b"1.37.447")
    demand = LogDemand()
    for number, line in enumerate(lines[: upto + 1]):
        parsed = parse_line(line)
        if parsed is not None and parsed.event is not None and type(parsed.event) in TOLD_BY:
            demand.observe(parsed.event, float(number), Geometry(4, 262_144, 262_144, True))

    assert 262_144 * 0.99 < demand.total < 262_144
    assert demand.above_since == float(upto)


def test_what_an_earlier_version_stored_is_read_without_it() -> None:
    story = two_prompts(3000, 1500)
    failed(story)
    stored = msgspec.json.decode(msgspec.json.encode(story.server.memory()))
    del stored["ledger"]["demand"]
    for incident in stored["ledger"]["incidents"]:
        del incident["demand_above_seconds"]

    memory = msgspec.json.decode(msgspec.json.encode(stored), type=ServerMemory)

    assert memory.ledger.demand.total == 0
    assert memory.ledger.incidents[0].demand_above_seconds is None


def test_memory_is_bounded_by_slots() -> None:
    demand = LogDemand()
    for number in range(5000):
        for text in (LAUNCH.format(number, number, 0), PROMPT.format(number, number, 10)):
            parsed = parse_line(text.encode())
            assert parsed is not None
            assert parsed.event is not None
            demand.observe(parsed.event, float(number), POOL)
    assert len(demand.requests) == 1024
    assert demand.total == 10_240


def test_it_counts_from_where_it_is_warned() -> None:
    assert NEARLY_ALL in [condition.committed_ratio for condition in POOL_WARN]


def test_the_four_agents_incident_had_been_coming_for_eleven_minutes() -> None:
    """By the log's own clock: from the largest prompt's first progress line to the first batch that found no room."""
    log = RECORDINGS / "replay-b11434-full" / "server.log"
    clock = re.compile(rb"(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) ")

    def first(text: bytes) -> float:
        line = next(line for line in log.read_bytes().splitlines() if text in line)
        minutes, seconds, thousandths, _ = map(int, clock.match(line).groups())  # type: ignore[union-attr]
        return minutes * 60 + seconds + thousandths / 1000

    coming = first(b"failed to find free space") - first(b"progress = 0.09")
    (server,) = replay(None, None, log, None, None).snapshot.servers
    (incident,) = server.incidents

    assert coming == pytest.approx(677, abs=1)
    assert incident.demand_above_seconds == pytest.approx(coming, abs=0.01)
