"""What an answer of `/slots` changes in what is known of one slot.

An answer may be older than what the log has told meanwhile: by its task's number and its time such words are known, and
passed over. `log_leads`: launches and releases are told by a log as well. `at`: when the answer was asked for.
"""

from __future__ import annotations

from kvexporter.llama.slots import SlotSample
from kvexporter.slot_state import SlotState


def take_processing(
    state: SlotState, sample: SlotSample, at: float, *, log_leads: bool, until: float | None, begun: bool
) -> None:
    """The slot runs a task. The answer came at `until`.

    `begun`: what the slot holds is of this task's prompt, and not of what it held before.
    """
    if sample.task is not None and sample.task == state.released_task:
        return  # older than the release
    if not state.processing or (sample.task is not None and sample.task != state.task):
        if log_leads and state.processing and _older(sample.task, state.task):
            return  # older than the launch
        state.begin(sample.task, at)
    state.polled_at = max(state.polled_at, at)
    state.watched = True
    state.remaining = sample.remaining
    if sample.prompt_cached or (sample.prompt_cached is not None and (begun or sample.prompt_processed != 0)):
        state.reused = sample.prompt_cached
    if sample.held is not None:
        if (sample.decoded or 0) != state.decoded:
            state.changed_at, state.decoded = at, sample.decoded or 0
        state.hold(sample.held, at, until)
    elif sample.decoded is not None:
        state.answer(sample.decoded, at)


def take_idle(state: SlotState, sample: SlotSample, at: float, *, log_leads: bool) -> None:
    """The slot runs nothing."""
    if state.processing:
        if log_leads and (sample.task is None or _older(sample.task, state.task)):
            return  # older than the launch
        state.finish(state.tokens, at)
    state.polled_at = max(state.polled_at, at)
    if sample.held is not None:
        state.hold(sample.held, at)
    elif sample.task is None and state.released_task is None:
        state.hold(0, at)  # never used


def _older(task: int | None, than: int | None) -> bool:
    return task is not None and than is not None and task < than
