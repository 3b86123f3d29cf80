"""Older builds answer between two batches only: what polls told stays in the meantime, and not for ever."""

from __future__ import annotations

from kvexporter.llama.slots import SlotSample
from tests.support.model import LogStory

START = "srv load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'"
LAUNCH = "slot launch_slot_: id {0:2} | task {1} | processing task, is_child = 0"
PROMPT = "slot update_slots: id {0:2} | task {1} | new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = {2}"
HELD = "slot update_slots: id {0:2} | task {1} | n_tokens = {2}, memory_seq_rm [{2}, end)"
DONE = "slot update_slots: id {0:2} | task {1} | prompt processing done, n_tokens = {2}, batch.n_tokens = {2}"


def answering_beside_a_prompt() -> LogStory:
    """Slot 1 answers, as a poll told just now, while slot 0 has read 2,048 of 5,000."""
    story = (
        LogStory().line(START).line(LAUNCH.format(1, 2)).line(PROMPT.format(1, 2, 1000)).line(DONE.format(1, 2, 1000))
    )
    story.line(LAUNCH.format(0, 1)).line(PROMPT.format(0, 1, 5000)).line(HELD.format(0, 1, 2048))
    samples = [SlotSample(0, True, 1, 8192, None, 0, None), SlotSample(1, True, 2, 8192, None, 11, None)]
    samples += [SlotSample(number, False, None, 8192, None, None, None) for number in (2, 3)]
    story.server.slots_polled(samples, story.at)
    return story


def processing(story: LogStory) -> int | None:
    pool = story.server.snapshot(story.at).pool
    return pool.processing_tokens if pool is not None else None


def test_while_a_prompt_is_read_the_answer_may_be_late() -> None:
    assert processing(answering_beside_a_prompt().wait(8)) == 2048 + 1010


def test_but_not_later_than_the_daemon_waits_for_it() -> None:
    assert processing(answering_beside_a_prompt().wait(30)) is None


def test_a_timeout_then_says_that_the_server_is_still_at_it() -> None:
    story = answering_beside_a_prompt()
    story.server.poll_failed("slots", "timeout", story.at + 5)
    assert processing(story.wait(30)) == 2048 + 1010


def test_any_other_failure_means_that_it_is_lost() -> None:
    story = answering_beside_a_prompt()
    story.server.poll_failed("slots", "unauthorized", story.at + 1)
    assert processing(story.wait(8)) is None


def test_nor_is_it_waited_for_when_no_prompt_is_read() -> None:
    assert processing(answering_beside_a_prompt().line(DONE.format(0, 1, 5000)).wait(8)) is None
