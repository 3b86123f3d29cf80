"""What running requests will need, and when the pool will be full, from each source that tells it."""

from __future__ import annotations

import pytest

from kvexporter.llama.slots import SlotSample
from kvexporter.replay import replay_snapshots, run_replay
from kvexporter.server import Server
from kvexporter.snapshot import PoolSnapshot
from tests.fuzz.invariants import assert_bounded
from tests.support.model import LogStory
from tests.support.paths import RECORDINGS

START = "srv load_model: initializing, n_slots = 4, n_ctx_slot = {0}, kv_unified = '{1}'"
LAUNCH = "slot launch_slot_: id {0:2} | task {1} | processing task, is_child = {2}"
PROMPT = "slot update_slots: id {0:2} | task {1} | new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = {2}"
PROGRESS = (
    "slot print_timing: id {0:2} | task {1} | prompt processing, n_tokens = {2:6}, progress = {3}, t = 3.5 s / 9.9 t"
)
DONE = "slot update_slots: id {0:2} | task {1} | prompt processing done, n_tokens = {2}, batch.n_tokens = {2}"
RELEASE = "slot      release: id {0:2} | task {1} | stop processing: n_tokens = {2}, truncated = 0"


def started(context: int = 8192, unified: str = "true") -> LogStory:
    """A server of four slots in one pool as large as a slot, or with a quarter each."""
    return LogStory().line(START.format(context, unified))


def pool_of(story: LogStory) -> PoolSnapshot:
    pool = story.server.snapshot(story.at).pool
    assert pool is not None
    return pool


def polled(story: LogStory, *slots: tuple[int, int, int, int | None]) -> LogStory:
    """An answer of /slots: (task, held, decoded, remaining) of the first slots."""
    samples = [
        SlotSample(number, True, task, 8192, held, decoded, remaining)
        for number, (task, held, decoded, remaining) in enumerate(slots)
    ]
    samples += [SlotSample(number, False, None, 8192, 0, None, None) for number in range(len(slots), 4)]
    story.server.slots_polled(samples, story.at)
    return story


# ---- demand ----------------------------------------------------------------------------------------------------------


def test_a_logged_prompt_counts_in_full_from_its_first_line_on() -> None:
    story = started().line(LAUNCH.format(0, 1, 0)).line(PROMPT.format(0, 1, 5000))
    story.line("slot update_slots: id  0 | task 1 | n_tokens = 700, memory_seq_rm [700, end)")
    pool = pool_of(story)
    assert (pool.processing_tokens, pool.committed_tokens, pool.demand_tokens) == (700, 5000, 5000)
    assert pool.committed_ratio == 5000 / 8192


def test_without_such_a_line_the_middle_of_what_rounded_progress_allows_is_taken() -> None:
    """2000 tokens are 0.25 of the whole, which is between 2000 / 0.255 = 7843 and 2000 / 0.245 = 8163."""
    story = started(16384).line(LAUNCH.format(0, 1, 0)).line(PROGRESS.format(0, 1, 2000, "0.25"))
    assert pool_of(story).committed_tokens == 8003


def test_a_second_line_narrows_it() -> None:
    """4000 tokens at 0.51 are 4000 / 0.515 = 7767 to 4000 / 0.505 = 7921 of all; at least 7843 was known before."""
    story = started(16384).line(LAUNCH.format(0, 1, 0)).line(PROGRESS.format(0, 1, 2000, "0.25"))
    story.line(PROGRESS.format(0, 1, 4000, "0.51"))
    assert pool_of(story).committed_tokens == 7882


def test_of_a_prompt_whose_size_nobody_told_what_is_there_counts() -> None:
    story = polled(started().line(LAUNCH.format(0, 1, 0)), (1, 1234, 0, None))
    assert pool_of(story).committed_tokens == 1234


def test_an_answer_counts_up_to_its_limit_less_the_last_token_which_is_never_stored() -> None:
    story = started().line(LAUNCH.format(0, 1, 0)).line(PROMPT.format(0, 1, 1000))
    polled(story, (1, 400, 0, 300))
    assert (pool_of(story).committed_tokens, pool_of(story).demand_tokens) == (1000, 1299)
    story.line(DONE.format(0, 1, 1000)).wait(1)
    polled(story, (1, 1099, 100, 200))
    assert (pool_of(story).committed_tokens, pool_of(story).demand_tokens) == (1099, 1299)


def test_an_answer_without_a_limit_counts_as_long_as_it_is() -> None:
    story = polled(started().line(LAUNCH.format(0, 1, 0)), (1, 1099, 100, None))
    assert pool_of(story).demand_tokens == 1099


def test_no_request_counts_more_than_its_slots_context() -> None:
    story = polled(started().line(LAUNCH.format(0, 1, 0)), (1, 1099, 100, 60_000), (2, 500, 1, 60_000))
    assert pool_of(story).demand_tokens == 2 * 8192
    assert pool_of(story).demand_ratio == 2.0


def test_a_prompt_shared_by_several_answers_counts_once() -> None:
    story = started()
    for slot in range(3):
        story.line(LAUNCH.format(slot, 10 + slot, int(slot > 0)))
    story.line(PROMPT.format(0, 10, 1000)).line(DONE.format(0, 10, 1000)).wait(1)
    polled(story, (10, 1019, 20, 80), (11, 1029, 30, 70), (12, 1009, 10, 90))
    pool = pool_of(story)
    assert pool.committed_tokens == 1000 + 19 + 29 + 9
    assert pool.demand_tokens == 1000 + 3 * 99


def test_requests_that_ended_need_nothing() -> None:
    story = started().line(LAUNCH.format(0, 1, 0)).line(PROMPT.format(0, 1, 5000)).line(RELEASE.format(0, 1, 5100))
    assert (pool_of(story).committed_tokens, pool_of(story).demand_tokens) == (0, 0)


def test_a_slot_that_waits_for_anothers_prompt_to_be_read_does_not_make_the_fill_unknown() -> None:
    """Builds that do not tell what a slot holds read one prompt after the other, which takes minutes."""
    story = started().line(LAUNCH.format(0, 1, 0)).line(LAUNCH.format(1, 2, 0)).line(PROMPT.format(0, 1, 5000))
    story.line("slot update_slots: id  0 | task 1 | n_tokens = 2048, memory_seq_rm [2048, end)").wait(60)
    assert pool_of(story).processing_tokens == 2048
    story.line(DONE.format(0, 1, 5000)).wait(60)
    assert story.server.snapshot(story.at).pool is None  # it should have been begun with


# ---- seconds to full -------------------------------------------------------------------------------------------------


def reading(story: LogStory, *, prompt: int, speed: int, seconds: int, other: int = 0) -> LogStory:
    """One prompt of a told size is read at so many tokens a second, beside a request that holds `other`."""
    story.line(LAUNCH.format(0, 1, 0)).line(PROMPT.format(0, 1, prompt))
    for second in range(seconds + 1):
        polled(story, (1, second * speed, 0, None), *([(2, other, 1, None)] if other else []))
        story.wait(1)
    return story


def test_prompts_that_need_more_than_there_is_fill_the_pool_at_the_speed_at_which_they_are_read() -> None:
    """6,000 of 7,000 are to be read at 100 a second beside 2,000: of 8,192 there are 5,192 left after ten seconds."""
    story = reading(started(), prompt=7000, speed=100, seconds=10, other=2000)
    left = pool_of(story).seconds_to_full
    assert left is not None
    assert left == pytest.approx(51.92, rel=0.12)


def test_prompts_that_fit_do_not_fill_it_however_fast_they_are_read() -> None:
    story = reading(started(), prompt=6000, speed=500, seconds=10, other=2000)
    assert pool_of(story).seconds_to_full is None


def test_two_seconds_are_too_little_to_tell_a_speed() -> None:
    story = reading(started(), prompt=7000, speed=100, seconds=2, other=2000)
    assert pool_of(story).seconds_to_full is None


@pytest.mark.parametrize(
    "start",
    [
        "srv load_model: initializing, n_slots = 4, n_ctx_slot = 2048, kv_unified = 'true'",
        "srv load_model: initializing, n_slots = 1, n_ctx_slot = 8192, kv_unified = 'true'",
        "srv load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'false'",
    ],
    ids=["capped", "one slot", "split"],
)
def test_a_pool_that_cannot_overflow_has_a_demand_and_no_time_to_full(start: str) -> None:
    server = LogStory().line(start)
    if "2048" in start:
        server = LogStory().line("srv load_model: capping per-slot context (8192) to --kv-unified-per-slot (2048)")
        server.line(start)
    story = reading(server, prompt=9000, speed=100, seconds=10, other=2000)
    assert pool_of(story).demand_tokens is not None
    assert pool_of(story).seconds_to_full is None


def answering(story: LogStory, *, seconds: int, speed: int, limit: int | None = None) -> LogStory:
    """Two answers to prompts of 3,500 tokens are written, each at so many tokens a second."""
    story.line(LAUNCH.format(0, 1, 0)).line(LAUNCH.format(1, 2, 0))
    for second in range(seconds + 1):
        decoded = 1 + second * speed
        remaining = None if limit is None else limit - decoded
        polled(story, *((task, 3500 + decoded - 1, decoded, remaining) for task in (1, 2)))
        story.wait(1)
    return story


def test_answers_are_expected_to_get_as_long_again_as_they_are() -> None:
    """After 50 s each has 500 tokens, and 192 are left for both: 9.6 s at 20 a second together."""
    story = answering(started(), seconds=50, speed=10)
    left = pool_of(story).seconds_to_full
    assert left is not None
    assert left == pytest.approx(9.6, rel=0.12)
    assert pool_of(answering(started(), seconds=20, speed=10)).seconds_to_full is None  # 792 left, 400 to be expected


def test_an_answer_is_not_expected_to_go_beyond_its_limit() -> None:
    story = answering(started(), seconds=50, speed=10, limit=560)
    assert pool_of(story).seconds_to_full is None  # 59 more each, and 192 are left


def test_silence_ends_the_forecast() -> None:
    story = reading(started(), prompt=7000, speed=100, seconds=10, other=2000)
    silent = LogStory(story.server, story.at)
    assert pool_of(silent).seconds_to_full is not None
    later = story.server.snapshot(story.at + 60).pool
    assert later is None or later.seconds_to_full is None


def test_a_new_process_begins_with_no_forecast() -> None:
    story = reading(started(), prompt=7000, speed=100, seconds=10, other=2000)
    story.line("0.00.001.017 I srv  llama_server: initializing ...").line(START.format(8192, "true"))
    story.line("srv  llama_server: model loaded")
    assert pool_of(story).seconds_to_full is None


def test_a_clock_that_was_set_back_begins_anew_and_does_not_stop_it() -> None:
    story = reading(started(), prompt=7000, speed=100, seconds=10, other=2000)
    story.at -= 3600
    story.server.tick(story.at)
    assert pool_of(story).seconds_to_full is None


def test_a_thousand_slots_for_hours_fill_no_memory() -> None:
    server = Server("s")
    for second in range(0, 7200, 30):
        samples = [SlotSample(n, True, second + n, 8192, second % 500 + n, 5, None) for n in range(1000)]
        server.slots_polled(samples, float(second))
    assert_bounded(server)


# ---- recordings ------------------------------------------------------------------------------------------------------


def test_at_97_seconds_and_a_fill_of_45_percent_the_four_agents_prompts_are_known_to_need_the_whole_pool() -> None:
    """The first progress line of the largest prompt comes at 97.4 s; all four died at 774 s."""
    recording = RECORDINGS / "replay-b11434-full"

    shown = {second: snapshot.servers[0].pool for second, snapshot in replay_snapshots(recording, (96.5, 97.5))}

    before, known = shown[96.5], shown[97.5]
    assert before is not None
    assert known is not None
    assert before.committed_ratio is not None
    assert before.committed_ratio < 0.45
    assert known.committed_ratio is not None
    assert known.committed_ratio >= 1.0
    assert known.fill_ratio == pytest.approx(0.45, abs=0.02)


def test_with_the_answers_limits_from_polls_it_is_known_once_all_four_run() -> None:
    """Each asked for an answer of up to 60,000 tokens; the last one was sent at 6.5 s."""
    (server,) = run_replay(directory=RECORDINGS / "replay-b11434-full", at=9).servers
    assert server.pool is not None
    assert server.pool.demand_tokens is not None
    assert server.pool.demand_tokens > 4 * 60_000
    assert server.pool.demand_ratio is not None
    assert server.pool.demand_ratio > 1


def test_what_the_four_agents_need_is_never_told_far_from_what_they_sent() -> None:
    """157,000 + 22,000 + 76,000 + 2,000 tokens of prompts, and answers of less than 1,400 each up to the end."""
    sent = 157_000 + 22_000 + 76_000 + 2_000
    for _, snapshot in replay_snapshots(RECORDINGS / "replay-b11434-full", range(110, 770, 30)):
        pool = snapshot.servers[0].pool
        assert pool is not None
        assert pool.committed_tokens is not None
        assert 0.99 * sent < pool.committed_tokens < 1.01 * sent + 4 * 1_400


def test_demand_is_never_below_the_fill() -> None:
    for name in ("agents-b11434", "agents-b8635", "replay-b11434-eighth"):
        for _, snapshot in replay_snapshots(RECORDINGS / name, [step / 2 for step in range(80)]):
            pool = snapshot.servers[0].pool
            if pool is not None and pool.committed_tokens is not None and pool.demand_tokens is not None:
                assert pool.processing_tokens <= pool.committed_tokens <= pool.demand_tokens


REUSED = "slot update_slots: id {0:2} | task {1} | n_tokens = {2}, memory_seq_rm [{2}, end)"


def growing_agents(story: LogStory, *, reuse: bool) -> LogStory:
    """Two agents by turns, 600 and 250 tokens more each time, a turn in ten seconds: 5,100 of 8,192 in the end."""
    held = [0, 0]
    for number in range(6):
        for slot, growth in ((0, 600), (1, 250)):
            task = 10 * number + slot
            prompt = held[slot] + growth
            story.line(LAUNCH.format(slot, task, 0)).line(PROMPT.format(slot, task, prompt))
            story.line(REUSED.format(slot, task, held[slot] if reuse else 0)).line(DONE.format(slot, task, prompt))
            story.wait(2).line(RELEASE.format(slot, task, prompt)).wait(3)
            held[slot] = prompt
    return story


def test_conversations_that_grow_are_told_though_their_turns_never_coincide() -> None:
    """85 tokens a second: 5,100 of 8,192 are taken after a minute, 3,600 and 1,500, so about 36 s are left."""
    left = pool_of(growing_agents(started(), reuse=True)).seconds_to_full
    assert left == pytest.approx((8192 - 5100) / 85, abs=10)


def test_requests_of_the_same_sizes_that_go_on_with_nothing_are_no_conversations() -> None:
    assert pool_of(growing_agents(started(), reuse=False)).seconds_to_full is None


@pytest.mark.parametrize(("size", "fits"), [(3_900, True), (4_500, False)])
def test_a_prompt_of_untold_size_is_taken_to_be_as_large_as_seven_of_ten_requests_are_at_most(
    size: int, fits: bool
) -> None:
    """1,000 to 5,000 and 4,500 itself: 3.5 steps from the first of six is 4,250, and 4,500 + 4,250 are too much for
    8,192. With 3,900 it is 3,950, which fits."""
    story = started()
    for task, other in enumerate((1000, 2000, 3000, 4000, 5000), start=1):
        story.line(LAUNCH.format(0, task, 0)).line(PROMPT.format(0, task, other)).wait(1)
        story.line(RELEASE.format(0, task, other)).wait(1)
    story.line(LAUNCH.format(0, 7, 0)).line(LAUNCH.format(1, 8, 0)).line(PROMPT.format(0, 7, size))
    for held in range(0, 600, 100):
        story.line(f"slot update_slots: id  0 | task 7 | n_tokens = {held}, memory_seq_rm [{held}, end)").wait(1)
    assert (pool_of(story).seconds_to_full is None) == fits
