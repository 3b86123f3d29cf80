"""Lines of one slot (`slot …: id  3 | task 6 | …`): the life of a task, and the timing block at its end."""

from __future__ import annotations

from kvexporter.llama.events import (
    ContextShifted,
    Event,
    GenerationTick,
    PromptDone,
    PromptProgress,
    PromptReused,
    PromptStarted,
    Released,
    SlotChosen,
    SlotCleared,
    SlotContext,
    TaskLaunched,
    Timing,
    TimingHeader,
    TimingKind,
)
from kvexporter.llama.log_grammar import SLOT_GROUP, TASK_GROUP, Build, Match, finite, rule

# `0.62` is known to 0.01, `0.468328` to 0.000001.
_STEPS = {decimals: float(f"1e-{decimals}") for decimals in range(16)}


def _chosen(m: Match, i: int) -> Event:
    slot, similarity, a, kept, b = m.group(SLOT_GROUP, i + 1, i + 2, i + 3, i + 4)
    step = max(_STEPS[len(a)], _STEPS[len(b)])
    return SlotChosen(int(slot), float(similarity + b"." + a), float(kept + b"." + b), step)


def _launched(m: Match, i: int) -> Event:
    slot, task, child = m.group(SLOT_GROUP, TASK_GROUP, i + 1)
    return TaskLaunched(int(slot), None if task is None else int(task), child == b"1")


def _prompt_started(m: Match, i: int) -> Event:
    slot, task, context, tokens = m.group(SLOT_GROUP, TASK_GROUP, i + 1, i + 2)
    return PromptStarted(int(slot), None if task is None else int(task), int(context), int(tokens))


def _prompt_reused(m: Match, i: int) -> Event:
    slot, task, tokens = m.group(SLOT_GROUP, TASK_GROUP, i + 1)
    return PromptReused(int(slot), None if task is None else int(task), int(tokens))


def _prompt_progress(m: Match, i: int) -> Event:
    slot, task, tokens, whole, decimals = m.group(SLOT_GROUP, TASK_GROUP, i + 1, i + 2, i + 3)
    progress = float(whole + b"." + decimals)
    return PromptProgress(int(slot), None if task is None else int(task), int(tokens), progress, _STEPS[len(decimals)])


def _prompt_done(m: Match, i: int) -> Event:
    slot, task, tokens = m.group(SLOT_GROUP, TASK_GROUP, i + 1)
    return PromptDone(int(slot), None if task is None else int(task), int(tokens))


def _generation_tick(m: Match, i: int) -> Event:
    slot, task, decoded, speed = m.group(SLOT_GROUP, TASK_GROUP, i + 1, i + 2)
    return GenerationTick(int(slot), None if task is None else int(task), int(decoded), finite(speed))


def _released(m: Match, i: int) -> Event:
    slot, task, tokens, truncated = m.group(SLOT_GROUP, TASK_GROUP, i + 1, i + 2)
    return Released(int(slot), None if task is None else int(task), int(tokens), truncated == b"1")


def _timing_header(m: Match, i: int) -> Event:
    return TimingHeader(int(m[SLOT_GROUP]), None if m[TASK_GROUP] is None else int(m[TASK_GROUP]))


def _timing(kind: TimingKind) -> Build:
    def build(m: Match, i: int) -> Event | None:
        slot, task, printed, tokens, speed = m.group(SLOT_GROUP, TASK_GROUP, i + 1, i + 2, i + 3)
        milliseconds = finite(printed)
        if milliseconds is None:
            return None
        number = None if slot is None else int(slot)
        return Timing(
            kind, number, None if task is None else int(task), milliseconds / 1000.0, int(tokens), finite(speed)
        )

    return build


def _slot_context(m: Match, i: int) -> Event:
    return SlotContext(int(m[SLOT_GROUP]), int(m[i + 1]))


def _shifted(m: Match, i: int) -> Event:
    slot, task, keep, left, discarded = m.group(SLOT_GROUP, TASK_GROUP, i + 1, i + 2, i + 3)
    kept = int(keep) + int(left) - int(discarded)
    return ContextShifted(int(slot), None if task is None else int(task), int(discarded), kept if kept >= 0 else None)


def _cleared(m: Match, i: int) -> Event:
    return SlotCleared(int(m[SLOT_GROUP]), int(m[i + 1]))


_TIMING = (
    rb" time += +<double> ms / +<count> (?:tokens|runs)"
    rb"(?: +\( *<-.-> ms per token, *<double> tokens per second\))?+<fields>"
)

TIMING_RULES = (
    rule(rb"prompt eval" + _TIMING, _timing("prompt")),
    rule(rb"eval" + _TIMING, _timing("generation")),
    rule(rb"total" + _TIMING, _timing("total")),
)
"""With the slot's tag (b9230 and later) or without one (before: they belong to the TimingHeader above them)."""

# What the slot holds is `n_past` up to b6889 and `n_tokens` later; a number after it is the size of the batch.
_PROGRESS = rb", progress = (\d{1,3})\.(\d{1,15})<fields>"
_SEQ_RM = rb" \[<count>, end\)"
_PART = rb"([01])\.(\d{1,15})"
_PROMPT = rb", n_ctx_slot = <count>, n_keep = <->, (?:task\.n_tokens|n_prompt_tokens) = <count><fields>"

# They are tried in this order: the frequent ones first.
SLOT_RULES = (
    rule(rb"stop processing: n_(?:past|tokens) = <count>(?:, truncated = ([01]))?+<fields>", _released),
    rule(rb"processing task(?:, is_child = ([01]))?+<fields>", _launched),
    rule(rb"n_(?:gen|decoded) = +<count>, tg = +<double> t/s<fields>", _generation_tick),
    *TIMING_RULES,
    rule(rb"prompt processing, n_tokens = +<count>" + _PROGRESS, _prompt_progress),
    rule(
        rb"prompt processing progress, n_(?:past|tokens) = +<count>, (?:batch\.)?n_tokens = <->" + _PROGRESS,
        _prompt_progress,
    ),
    rule(
        rb"selected slot by LCP similarity, (?:f_)?sim_best = "
        + _PART
        + rb" \(> \d{1,3}(?:\.\d{1,15})? thold\), f_keep = "
        + _PART
        + rb"<fields>",
        _chosen,
    ),
    rule(rb"prompt (?:processing )?done, n_(?:past|tokens) = <count><fields>", _prompt_done),
    rule(rb"new prompt" + _PROMPT, _prompt_started),
    rule(rb"prompt tokenized" + _PROMPT, _prompt_started),
    rule(rb"kv cache rm" + _SEQ_RM, _prompt_reused),
    rule(rb"n_(?:past|tokens) = <->, memory_seq_rm" + _SEQ_RM, _prompt_reused),
    rule(rb"cached n_tokens = <->, memory_seq_rm" + _SEQ_RM, _prompt_reused),
    rule(rb"<end>", _timing_header),
    rule(rb"new slot,? n_ctx(?:_slot)? = <count><fields>", _slot_context),
    rule(rb"slot context shift, n_keep = (-?\d{1,15}), n_left = (-?\d{1,15}), n_discard = <count><fields>", _shifted),
    rule(rb"clearing (?:slot|prompt) with <count> tokens<fields>", _cleared),
)
