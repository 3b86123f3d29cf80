"""Slots fused from a log and from polls that overtake each other."""

from __future__ import annotations

from kvexporter.llama.slots import SlotSample
from kvexporter.pool import MAX_SLOTS, Pool


def sample(
    number: int,
    *,
    processing: bool = False,
    task: int | None = None,
    held: int | None = None,
    decoded: int | None = None,
    remaining: int | None = None,
) -> SlotSample:
    return SlotSample(number, processing, task, 4096, held, decoded, remaining)


def fresh() -> Pool:
    pool = Pool()
    pool.restart()
    return pool


def tokens_of(pool: Pool, slot: int) -> int | None:
    return next(s.tokens for s in pool.snapshot(100) if s.id == slot)


def test_the_log_alone_gives_tokens_while_a_prompt_is_read_and_at_the_release() -> None:
    pool = fresh()
    pool.launch(0, 6, 1)
    pool.prompt(0, 6, 900, 1)
    pool.held(0, 6, 247, 2)
    assert pool.tokens() == (247, 0)
    pool.held(0, 6, 900, 3)
    assert pool.tokens() == (900, 0)
    pool.answered(0, 6, 51, 4)
    assert pool.tokens() == (950, 0), "the answer's last token is not in the cache yet"
    pool.release(0, 6, 1023)
    assert pool.tokens() == (0, 1023)


def test_newer_builds_held_tokens_already_contain_the_answer() -> None:
    pool = fresh()
    pool.sample([sample(0, processing=True, task=6, held=950, decoded=51)], 1, log_leads=False)
    assert pool.tokens() == (950, 0)


def test_older_builds_need_the_prompts_size_from_the_log() -> None:
    pool = fresh()
    pool.launch(0, 6, 1)
    pool.prompt(0, 6, 900, 1)
    pool.sample([sample(0, processing=True, task=6, decoded=124)], 2, log_leads=True)
    assert tokens_of(pool, 0) == 1023


def test_a_poll_that_still_shows_a_released_task_is_passed_over() -> None:
    pool = fresh()
    pool.launch(0, 6, 1)
    pool.release(0, 6, 1023)
    pool.sample([sample(0, processing=True, task=6, held=1000, decoded=100)], 2, log_leads=True)
    assert pool.tokens() == (0, 1023)


def test_a_poll_that_does_not_show_a_launched_task_yet_is_passed_over() -> None:
    pool = fresh()
    pool.launch(0, 6, 1)
    pool.held(0, 6, 500, 1)
    pool.sample([sample(0, task=3, held=77)], 2, log_leads=True)
    assert pool.tokens() == (500, 0)


def test_a_poll_that_shows_a_later_task_starts_it() -> None:
    pool = fresh()
    pool.launch(0, 6, 1)
    pool.sample([sample(0, processing=True, task=9, held=10, decoded=0)], 5, log_leads=True)
    (slot,) = pool.snapshot(7)
    assert (slot.task, slot.tokens, slot.task_age) == (9, 10, 2)


def test_without_a_log_polls_start_and_end_tasks() -> None:
    pool = Pool()
    pool.sample([sample(0, processing=True, task=6, held=300, decoded=1)], 1, log_leads=False)
    assert pool.processing
    pool.sample([sample(0, task=6, held=349, decoded=50)], 2, log_leads=False)
    assert not pool.processing
    assert pool.tokens() == (0, 349)


def test_an_idle_slots_stale_fields_count_nothing() -> None:
    pool = fresh()
    pool.sample([sample(0, task=6, decoded=256, remaining=0)], 1, log_leads=False)
    (slot,) = pool.snapshot(2)
    assert (slot.tokens, slot.task, slot.remaining, slot.stalled) == (0, None, None, None)


def test_joined_midway_an_idle_slot_of_an_older_build_is_of_unknown_size() -> None:
    pool = Pool()
    pool.sample([sample(0, task=6, decoded=256), sample(1)], 1, log_leads=False)
    assert tokens_of(pool, 0) is None
    assert tokens_of(pool, 1) == 0, "never used"
    assert pool.tokens() == (0, None)


def test_a_running_slot_of_unknown_size_makes_the_sum_unknown() -> None:
    pool = Pool()
    pool.sample([sample(0, processing=True, task=6, decoded=3)], 1, log_leads=False)
    assert pool.tokens() == (None, 0)


def test_a_context_shift_takes_the_forgotten_tokens_off() -> None:
    pool = fresh()
    pool.launch(0, 6, 1)
    pool.prompt(0, 6, 900, 1)
    pool.held(0, 6, 900, 1)
    pool.answered(0, 6, 124, 2)
    pool.shift(0, 511, 3)
    assert tokens_of(pool, 0) == 1023 - 511
    pool.answered(0, 6, 125, 4)
    assert tokens_of(pool, 0) == 1024 - 511


def test_a_healthy_long_prefill_is_not_stalled_and_a_hung_task_is() -> None:
    pool = fresh()
    pool.launch(0, 6, 0)
    for second in range(1, 50):
        pool.sample([sample(0, processing=True, task=6, held=second * 100, decoded=0)], second, log_leads=True)
    assert pool.snapshot(50)[0].stalled == 1
    for second in range(50, 80):
        pool.sample([sample(0, processing=True, task=6, held=4900, decoded=0)], second, log_leads=True)
    assert pool.snapshot(80)[0].stalled == 31
    assert pool.snapshot(80)[0].task_age == 80


def test_a_task_whose_progress_nothing_shows_is_not_called_stalled() -> None:
    pool = fresh()
    pool.launch(0, 6, 0)
    assert pool.snapshot(500)[0].stalled is None
    assert pool.snapshot(500)[0].task_age == 500


def test_slots_that_are_not_there_any_more_disappear() -> None:
    pool = fresh()
    pool.sample([sample(0), sample(1)], 1, log_leads=False)
    pool.sample([sample(0)], 2, log_leads=False)
    assert [slot.id for slot in pool.snapshot(3)] == [0]


def test_the_number_of_slots_is_bounded() -> None:
    pool = fresh()
    pool.sample([sample(number) for number in range(MAX_SLOTS + 10)], 1, log_leads=False)
    assert len(pool.snapshot(2)) == MAX_SLOTS
    assert pool.left_out == 10


def test_a_missed_launch_line_is_made_up_for_by_the_next_line_of_the_task() -> None:
    pool = fresh()
    pool.held(2, 7, 512, 5)
    (slot,) = pool.snapshot(6)
    assert (slot.id, slot.task, slot.processing, slot.tokens) == (2, 7, True, 512)
