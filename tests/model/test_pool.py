"""Slots fused from a log and from polls that overtake each other."""

from __future__ import annotations

from math import inf

from kvexporter.llama.slots import SlotSample
from kvexporter.pool import MAX_SLOTS, Pool
from kvexporter.slot_state import LONG_AGO
from kvexporter.snapshot import SlotSnapshot


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


def shown(pool: Pool, now: float = 100) -> tuple[SlotSnapshot, ...]:
    return pool.snapshot(now, LONG_AGO)


def tokens_of(pool: Pool, slot: int) -> int | None:
    return next(s.tokens for s in shown(pool) if s.id == slot)


def sums(pool: Pool) -> tuple[int | None, int | None]:
    """(processing, idle), where nothing is too old and nothing too new to be told."""
    return pool.processing_tokens(LONG_AGO, inf), pool.idle_tokens()


def test_the_log_alone_gives_tokens_while_a_prompt_is_read_and_at_the_release() -> None:
    pool = fresh()
    pool.launch(0, 6, 1)
    pool.prompt(0, 6, 900, 1)
    pool.held(0, 6, 247, 2)
    assert sums(pool) == (247, 0)
    pool.read(0, 6, 900, 3)
    assert sums(pool) == (900, 0)
    pool.answered(0, 6, 51, 4)
    assert sums(pool) == (950, 0), "the answer's last token is not in the cache yet"
    pool.release(0, 6, 1023, 5)
    assert sums(pool) == (0, 1023)


def test_newer_builds_held_tokens_already_contain_the_answer() -> None:
    pool = fresh()
    pool.sample([sample(0, processing=True, task=6, held=950, decoded=51)], 1, log_leads=False)
    assert sums(pool) == (950, 0)


def test_older_builds_need_the_prompts_size_from_the_log() -> None:
    pool = fresh()
    pool.launch(0, 6, 1)
    pool.prompt(0, 6, 900, 1)
    pool.sample([sample(0, processing=True, task=6, decoded=124)], 2, log_leads=True)
    assert tokens_of(pool, 0) == 1023


def test_a_poll_that_still_shows_a_released_task_is_passed_over() -> None:
    pool = fresh()
    pool.launch(0, 6, 1)
    pool.release(0, 6, 1023, 1.5)
    pool.sample([sample(0, processing=True, task=6, held=1000, decoded=100)], 2, log_leads=True)
    assert sums(pool) == (0, 1023)


def test_a_poll_that_does_not_show_a_launched_task_yet_is_passed_over() -> None:
    pool = fresh()
    pool.launch(0, 6, 1)
    pool.held(0, 6, 500, 1)
    pool.sample([sample(0, task=3, held=77)], 2, log_leads=True)
    assert sums(pool) == (500, 0)


def test_a_poll_that_shows_a_later_task_starts_it() -> None:
    pool = fresh()
    pool.launch(0, 6, 1)
    pool.sample([sample(0, processing=True, task=9, held=10, decoded=0)], 5, log_leads=True)
    (slot,) = shown(pool, 7)
    assert (slot.task, slot.tokens, slot.task_age) == (9, 10, 2)


def test_without_a_log_polls_start_and_end_tasks() -> None:
    pool = Pool()
    pool.sample([sample(0, processing=True, task=6, held=300, decoded=1)], 1, log_leads=False)
    assert pool.processing
    pool.sample([sample(0, task=6, held=349, decoded=50)], 2, log_leads=False)
    assert not pool.processing
    assert sums(pool) == (0, 349)


def test_an_idle_slots_stale_fields_count_nothing() -> None:
    pool = fresh()
    pool.sample([sample(0, task=6, decoded=256, remaining=0)], 1, log_leads=False)
    (slot,) = shown(pool, 2)
    assert (slot.tokens, slot.task, slot.remaining, slot.stalled) == (0, None, None, None)


def test_joined_midway_an_idle_slot_of_an_older_build_is_of_unknown_size() -> None:
    pool = Pool()
    pool.sample([sample(0, task=6, decoded=256), sample(1)], 1, log_leads=False)
    assert tokens_of(pool, 0) is None
    assert tokens_of(pool, 1) == 0, "never used"
    assert sums(pool) == (0, None)


def test_a_running_slot_of_unknown_size_makes_the_sum_unknown() -> None:
    pool = Pool()
    pool.sample([sample(0, processing=True, task=6, decoded=3)], 1, log_leads=False)
    assert sums(pool) == (None, None)


def test_a_context_shift_takes_the_forgotten_tokens_off() -> None:
    pool = fresh()
    pool.launch(0, 6, 1)
    pool.prompt(0, 6, 900, 1)
    pool.held(0, 6, 900, 1)
    pool.answered(0, 6, 124, 2)
    pool.shift(0, 6, 511, None, 3)
    assert tokens_of(pool, 0) == 1023 - 511
    pool.answered(0, 6, 125, 4)
    assert tokens_of(pool, 0) == 1024 - 511


def test_a_healthy_long_prefill_is_not_stalled_and_a_hung_task_is() -> None:
    pool = fresh()
    pool.launch(0, 6, 0)
    for second in range(1, 50):
        pool.sample([sample(0, processing=True, task=6, held=second * 100, decoded=0)], second, log_leads=True)
    assert shown(pool, 50)[0].stalled == 1
    for second in range(50, 80):
        pool.sample([sample(0, processing=True, task=6, held=4900, decoded=0)], second, log_leads=True)
    assert shown(pool, 80)[0].stalled == 31
    assert shown(pool, 80)[0].task_age == 80


def test_a_task_whose_progress_nothing_shows_is_not_called_stalled() -> None:
    pool = fresh()
    pool.launch(0, 6, 0)
    assert shown(pool, 500)[0].stalled is None
    assert shown(pool, 500)[0].task_age == 500


def test_slots_that_are_not_there_any_more_disappear() -> None:
    pool = fresh()
    pool.sample([sample(0), sample(1)], 1, log_leads=False)
    pool.sample([sample(0)], 2, log_leads=False)
    assert [slot.id for slot in shown(pool, 3)] == [0]


def test_the_number_of_slots_is_bounded() -> None:
    pool = fresh()
    pool.sample([sample(number) for number in range(MAX_SLOTS + 10)], 1, log_leads=False)
    assert len(shown(pool, 2)) == MAX_SLOTS
    assert pool.left_out == 10


def test_a_missed_launch_line_is_made_up_for_by_the_next_line_of_the_task() -> None:
    pool = fresh()
    pool.held(2, 7, 512, 5)
    (slot,) = shown(pool, 6)
    assert (slot.id, slot.task, slot.processing, slot.tokens) == (2, 7, True, 512)


# ---- lines that come later than polls: journald delivers up to half a second late -----------------------------------


def test_a_late_all_idle_line_does_not_end_a_task_that_a_poll_has_seen() -> None:
    pool = fresh()
    pool.sample([sample(0, processing=True, task=7, held=100, decoded=1)], 1002.0, log_leads=True)
    pool.all_idle(1001.6)
    pool.launch(0, 7, 1001.65)
    pool.prompt(0, 7, 900, 1001.65)
    pool.sample([sample(0, processing=True, task=7, held=1659, decoded=760)], 1003.0, log_leads=True)
    assert sums(pool) == (1659, 0)
    assert shown(pool, 1003)[0].task_age == 1003 - 1001.65


def test_all_slots_idle_ends_what_ran_before_and_a_later_poll_may_show_it_again() -> None:
    pool = fresh()
    pool.launch(0, 7, 10)
    pool.all_idle(11)
    assert not pool.processing
    pool.sample([sample(0, processing=True, task=7, held=100, decoded=1)], 12, log_leads=True)
    assert pool.processing


def test_a_late_release_of_an_earlier_task_leaves_the_running_one_alone() -> None:
    pool = fresh()
    pool.sample([sample(0, processing=True, task=20, held=50, decoded=1)], 1002.0, log_leads=True)
    pool.release(0, 19, 60_010, 1001.7)
    pool.launch(0, 20, 1001.75)
    assert sums(pool) == (50, 0)


def test_a_late_line_does_not_replace_a_newer_polled_value() -> None:
    pool = fresh()
    pool.launch(0, 5, 1000)
    pool.sample([sample(0, processing=True, task=5, held=3000, decoded=0)], 1002.0, log_leads=True)
    pool.reading(0, 5, 2500, 0.5, 0.01, 1001.6)
    assert tokens_of(pool, 0) == 3000


def test_a_late_launch_of_a_task_that_has_come_and_gone_is_passed_over() -> None:
    pool = fresh()
    pool.sample([sample(0, task=6, held=0)], 1002.0, log_leads=True)
    pool.launch(0, 6, 1001.5)
    assert not pool.processing
    pool.release(0, 6, 1025, 1001.9)
    assert sums(pool) == (0, 0), "the poll after it saw the cache emptied"


# ---- what is not known -----------------------------------------------------------------------------------------------


def test_a_launched_tasks_size_is_unknown_and_its_old_cache_can_be_given_back() -> None:
    pool = fresh()
    pool.release(0, 1, 60_000, 1)
    pool.launch(0, 2, 10)
    assert tokens_of(pool, 0) is None
    assert sums(pool) == (None, 60_000)
    assert pool.processing_tokens(LONG_AGO, 9) == 0, "just launched: nothing is said yet"
    assert pool.processing_tokens(LONG_AGO, 11) is None
    pool.sample([sample(0, processing=True, task=2, held=12, decoded=1)], 10.8, log_leads=True)
    assert sums(pool) == (12, 0)


def test_without_a_log_a_lower_task_number_is_a_deferred_task_or_a_new_server() -> None:
    pool = Pool()
    pool.sample([sample(0, processing=True, task=12, held=60_000, decoded=9)], 1, log_leads=False)
    pool.sample([sample(0, processing=True, task=9, held=100, decoded=1)], 2, log_leads=False)
    assert sums(pool) == (100, 0)


def test_a_cut_prompt_counts_as_it_was_read() -> None:
    pool = fresh()
    pool.launch(0, 3, 1)
    pool.prompt(0, 3, 5000, 1)
    pool.read(0, 3, 904, 2)
    pool.sample([sample(0, processing=True, task=3, decoded=11)], 3, log_leads=True)
    assert tokens_of(pool, 0) == 914


def test_a_context_shift_that_tells_what_is_kept_is_exact() -> None:
    pool = fresh()
    pool.launch(0, 3, 1)
    pool.prompt(0, 3, 900, 1)
    pool.read(0, 3, 900, 1)
    for at in (2, 3):
        pool.shift(0, 3, 511, 512, at)
        assert tokens_of(pool, 0) == 512


def test_progress_figures_tell_the_prompt_that_no_line_tells() -> None:
    """b11434 without /slots: 30,000 tokens at progress 1.00, then 9,000 generated; the release said 38,999."""
    pool = fresh()
    pool.launch(0, 3, 1)
    pool.reading(0, 3, 15_000, 0.50, 0.01, 2)
    pool.reading(0, 3, 30_000, 1.00, 0.01, 3)
    pool.answered(0, 3, 9_000, 4)
    tokens = tokens_of(pool, 0)
    assert tokens is not None
    assert abs(tokens - 38_999) <= 300


def test_several_answers_to_one_prompt_share_its_cells() -> None:
    pool = fresh()
    pool.launch(0, 1, 1)
    for slot in (1, 2, 3):
        pool.launch(slot, slot + 1, 1, child=True)
    pool.sample(
        [sample(slot, processing=True, task=slot + 1, held=10_000 + 100, decoded=101) for slot in range(4)],
        2,
        log_leads=True,
    )
    assert sums(pool) == (10_000 + 4 * 100, 0)
    pool.release(0, 1, 10_101, 3)
    assert sums(pool)[0] == 10_000 + 3 * 100, "one of the others holds the prompt now"


def test_a_slot_that_waits_for_the_others_prompts_is_not_stalled() -> None:
    pool = fresh()
    for second in range(40):
        pool.sample(
            [
                sample(0, processing=True, task=1, held=second * 300, decoded=0),
                sample(1, processing=True, task=2, held=0, decoded=0),
            ],
            second,
            log_leads=False,
        )
    assert [slot.stalled for slot in shown(pool, 40)] == [1, 1]


def test_a_decode_that_nothing_shows_is_not_called_stalled_because_its_prompt_was() -> None:
    pool = fresh()
    pool.launch(0, 1, 1)
    pool.reading(0, 1, 500, 0.5, 0.000001, 2)
    assert shown(pool, 10)[0].stalled == 8
    pool.read(0, 1, 1000, 11)
    assert shown(pool, 300)[0].stalled is None


def test_what_a_prompt_goes_on_with_is_the_first_word_of_it_though_each_batch_tells_one() -> None:
    pool = fresh()
    pool.launch(0, 1, at=1)
    pool.held(0, 1, 700, at=2)
    pool.held(0, 1, 2748, at=3)
    assert pool.slots[0].reused == 700
    pool.sample([sample(0, processing=True, task=1, decoded=3)], at=4, log_leads=True)
    assert pool.slots[0].reused == 700
    pool.launch(0, 2, at=5)
    assert pool.slots[0].reused is None
