"""A prompt's size by the line that chose its slot: known at the launch, rounded, and for what is forecast only."""

from __future__ import annotations

import pytest

from kvexporter.llama import events as ev
from kvexporter.llama.log import parse_line
from kvexporter.llama.slots import SlotSample
from kvexporter.pool import Pool
from kvexporter.server import Server
from kvexporter.snapshot import PoolSnapshot
from tests.support.model import STEP, LogStory
from tests.support.paths import RECORDINGS

START = "srv load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'false'"
CHOSEN = (
    "slot get_availabl: id {0:2} | task -1 | selected slot by LCP similarity, f_sim_best = {1} (> 0.100 thold), "
    "f_keep = {2}"
)
LONGEST_UNUSED = "slot get_availabl: id {0:2} | task -1 | selected slot by LRU, t_last = 4972592092"
LAUNCH = "slot launch_slot_: id {0:2} | task {1} | processing task, is_child = 0"
PROMPT = "slot update_slots: id {0:2} | task {1} | new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = {2}"
PROGRESS = "slot print_timing: id {0:2} | task {1} | prompt processing, n_tokens = {2:6}, progress = {3}, t = 3.5 s / 9"
RELEASE = "slot      release: id {0:2} | task {1} | stop processing: n_tokens = {2}, truncated = 0"


def released(tokens: int) -> LogStory:
    """Slot 0 holds so many tokens of a request that has ended."""
    return LogStory().line(START).line(LAUNCH.format(0, 1)).line(RELEASE.format(0, 1, tokens))


def pool_of(story: LogStory) -> PoolSnapshot:
    pool = story.server.snapshot(story.at).pool
    assert pool is not None
    return pool


def polled(story: LogStory, task: int, held: int) -> LogStory:
    """An answer of /slots in which slot 0 reads its prompt."""
    story.server.slots_polled([SlotSample(0, True, task, 8192, held, 0, None)], story.at)
    return story


def test_what_prompt_and_cache_have_in_common_tells_the_prompts_size_at_the_launch() -> None:
    """0.8 of the 2,000 cached tokens are half of the prompt: 3,200."""
    story = released(2000).line(CHOSEN.format(0, "0.500", "0.800")).line(LAUNCH.format(0, 7))
    assert pool_of(story).committed_tokens == 3200


def test_it_is_no_size_that_the_log_told() -> None:
    story = released(2000).line(CHOSEN.format(0, "0.500", "0.800")).line(LAUNCH.format(0, 7))
    slot = story.server.snapshot(story.at).slots[0]
    assert (slot.processing, slot.prompt_tokens, slot.tokens) == (True, None, None)
    assert pool_of(story).processing_tokens == 0


def test_the_exact_word_takes_its_place() -> None:
    story = released(2000).line(CHOSEN.format(0, "0.500", "0.800")).line(LAUNCH.format(0, 7))
    assert pool_of(story.line(PROMPT.format(0, 7, 3199))).committed_tokens == 3199


@pytest.mark.parametrize(
    ("progress", "whole"),
    [
        ("0.50", 3200),  # 1,600 at a half: 3,168 to 3,232
        ("0.25", round(1600 / 0.255)),  # 6,275 to 6,531: then it was wrong
        ("0.80", round(1600 / 0.795)),  # 1,988 to 2,013
    ],
)
def test_progress_figures_bound_it(progress: str, whole: int) -> None:
    story = released(2000).line(CHOSEN.format(0, "0.500", "0.800")).line(LAUNCH.format(0, 7))
    assert pool_of(story.line(PROGRESS.format(0, 7, 1600, progress))).committed_tokens == whole


def test_a_slot_chosen_for_other_reasons_tells_no_size() -> None:
    story = released(2000).line(CHOSEN.format(0, "0.500", "0.800")).line(LAUNCH.format(0, 7))
    story.line(RELEASE.format(0, 7, 3300)).line(LONGEST_UNUSED.format(0)).line(LAUNCH.format(0, 8))
    assert pool_of(story).committed_tokens == 0


def test_without_the_caches_size_there_is_none() -> None:
    """The exporter came when the slot held something already."""
    story = LogStory()
    story.line("slot launch_slot_: id  1 | task 1 | processing task, is_child = 0")
    story.line(CHOSEN.format(0, "0.500", "0.800")).line(LAUNCH.format(0, 7))
    assert story.server._parts.pool.slots[0].estimated_prompt is None


@pytest.mark.parametrize(("similarity", "kept"), [("0.500", "0.009"), ("0.009", "0.500"), ("0.000", "0.000")])
def test_parts_that_are_mostly_rounding_tell_none(similarity: str, kept: str) -> None:
    story = released(2000).line(CHOSEN.format(0, similarity, kept)).line(LAUNCH.format(0, 7))
    assert pool_of(story).committed_tokens == 0


def test_a_poll_that_shows_the_task_before_its_lines_come_takes_nothing_away() -> None:
    story = polled(released(2000), 7, 2000)
    story.line(CHOSEN.format(0, "0.500", "0.800")).line(LAUNCH.format(0, 7))
    assert pool_of(story).committed_tokens == 3200
    assert pool_of(story).processing_tokens == 2000


def test_nor_does_one_that_has_seen_only_a_part_of_the_last_answer() -> None:
    """The last task ended with 2,000 tokens, which its late release tells."""
    story = LogStory().line(START).line(LAUNCH.format(0, 1))
    polled(polled(story, 1, 1900), 7, 2000)
    story.line(RELEASE.format(0, 1, 2000)).line(CHOSEN.format(0, "0.500", "0.800")).line(LAUNCH.format(0, 7))
    assert pool_of(story).committed_tokens == 3200


def test_a_waiting_prompt_that_shows_the_slots_old_cache_does_not_go_on_with_nothing() -> None:
    """b11434 shows n_prompt_tokens_cache as 0 until a prompt is begun with, and the cache as held (seen of slot 0
    while slot 2 read)."""
    pool = Pool()
    pool.restart()
    reading = SlotSample(2, True, 92, 24576, 11048, 0, None, prompt_processed=2048, prompt_cached=9000)
    waiting = SlotSample(0, True, 95, 24576, 3519, 0, None, prompt_processed=0, prompt_cached=0)
    pool.sample([waiting, reading], 1.0, log_leads=True)
    assert (pool.slots[0].reused, pool.slots[2].reused) == (None, 9000)
    begun = SlotSample(0, True, 95, 24576, 4100, 0, None, prompt_processed=0, prompt_cached=3500)
    pool.sample([begun, reading], 2.0, log_leads=True)
    assert pool.slots[0].reused == 3500


def test_one_that_is_read_alone_and_shows_none_does() -> None:
    pool = Pool()
    pool.restart()
    pool.sample([SlotSample(2, True, 22, 24576, 2048, 0, None, prompt_processed=0, prompt_cached=0)], 1, log_leads=True)
    assert pool.slots[2].reused == 0


def rounding(event: ev.SlotChosen) -> float:
    """How far off a size may be for the three decimals, as a part of it."""
    return 0.0005 / event.similarity + 0.0005 / event.kept + 1e-6


def estimates(name: str) -> list[tuple[ev.SlotChosen, int, int]]:
    """(line, estimate, size as told later) of all such lines of a recording.

    b8635 tells the size in its `new prompt` line; b11434 only at the end: what was released less the answer, whose last
    token is not stored.
    """
    server, at = Server("test"), 1000.0
    chosen: dict[int, ev.SlotChosen] = {}
    found: list[tuple[ev.SlotChosen, int, int]] = []
    told: set[int] = set()
    answer: int | None = None
    for line in (RECORDINGS / name / "server.log").read_bytes().splitlines():
        parsed = parse_line(line)
        event = parsed.event if parsed is not None else None
        if parsed is None or event is None:
            continue
        size = None
        if isinstance(event, ev.SlotChosen):
            chosen[event.slot] = event
            told.discard(event.slot)
            answer = None
        elif isinstance(event, ev.Timing) and event.kind == "generation":
            answer = event.tokens
        elif isinstance(event, ev.PromptStarted):
            size = event.prompt_tokens
        elif isinstance(event, ev.Released) and answer is not None:
            size = event.tokens - answer + 1
        if isinstance(event, ev.PromptStarted | ev.Released) and event.slot in chosen and event.slot not in told:
            estimate = server._parts.pool.slots[event.slot].estimated_prompt
            if estimate is not None and size is not None:
                found.append((chosen[event.slot], estimate, size))
            told.add(event.slot)
        at += STEP
        server.line(parsed, at)
    return found


@pytest.mark.parametrize(("name", "lines"), [("agents-b8635", 45), ("agents-b11434", 16)])
def test_of_real_agents_each_estimate_is_right_within_the_rounding(name: str, lines: int) -> None:
    """On b11434 the 17th such line's request died."""
    found = estimates(name)
    assert len(found) == lines
    wrong = [(event, estimate, size) for event, estimate, size in found if abs(estimate / size - 1) > rounding(event)]
    assert wrong == []
