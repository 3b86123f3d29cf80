"""One body of `GET /slots` as typed slots, for every shape since 2024."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kvexporter.llama.errors import MalformedBody, unexpected
from kvexporter.llama.json_fields import UNREADABLE, flag, number

MOST_SLOTS = 1024
"""Slots kept of one body; llama.cpp itself has no more than 256 sequences."""


@dataclass(frozen=True, slots=True)
class SlotSample:
    """One slot as the endpoint shows it. Token fields are None where the build does not tell them."""

    id: int
    processing: bool
    task: int | None
    """Task number; None if the slot never had one. On an idle slot it is the last task's: stale."""
    context: int | None
    """`n_ctx` in tokens; None if 0 or absent."""
    held: int | None
    """`n_prompt_tokens` of newer builds: tokens the slot holds now, prompt so far and answer together.

    None on older builds.
    """
    decoded: int | None
    """Tokens of the answer so far. Stale on an idle slot."""
    remaining: int | None
    """Tokens the answer may still get; None without a limit (-1)."""
    max_tokens: int | None = None
    """The request's own limit of its answer; None without one."""
    prompt_processed: int | None = None
    prompt_cached: int | None = None


# Only the wanted fields are named: the decoder skips the others, so prompts, answers, grammars and stop words, which
# older builds send along, are never built.


class _Slot(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()
    id_task: msgspec.Raw = msgspec.Raw()
    task_id: msgspec.Raw = msgspec.Raw()
    is_processing: msgspec.Raw = msgspec.Raw()
    state: msgspec.Raw = msgspec.Raw()
    n_ctx: msgspec.Raw = msgspec.Raw()
    n_prompt_tokens: msgspec.Raw = msgspec.Raw()
    n_prompt_tokens_processed: msgspec.Raw = msgspec.Raw()
    n_prompt_tokens_cache: msgspec.Raw = msgspec.Raw()
    params: msgspec.Raw = msgspec.Raw()
    next_token: msgspec.Raw = msgspec.Raw()
    n_predict: msgspec.Raw = msgspec.Raw()
    max_tokens: msgspec.Raw = msgspec.Raw()


class _Parameters(msgspec.Struct):
    n_predict: msgspec.Raw = msgspec.Raw()
    max_tokens: msgspec.Raw = msgspec.Raw()


class _NextToken(msgspec.Struct):
    n_remain: msgspec.Raw = msgspec.Raw()
    n_decoded: msgspec.Raw = msgspec.Raw()
    num_tokens_predicted: msgspec.Raw = msgspec.Raw()


_slots_decoder = msgspec.json.Decoder(list[_Slot])
_parameters_decoder = msgspec.json.Decoder(_Parameters)
_next_token_decoder = msgspec.json.Decoder(_NextToken | list[_NextToken])


def parse_slots(body: bytes) -> tuple[SlotSample, ...]:
    """The slots of one body, in its order; at most the first 1024.

    Of slots with the same id, one that is processing is kept, for only such a one can exhaust the pool; of equals the
    later one. Numbers that are negative or above 2**40 count as absent.

    Raises MalformedBody for anything but an array of slots.
    """
    try:
        slots = _slots_decoder.decode(body)
    except UNREADABLE:
        raise unexpected(body, "an array of slots") from None
    samples: dict[int, SlotSample] = {}
    for slot in slots[:MOST_SLOTS]:
        sample = _sample(slot)
        known = samples.get(sample.id)
        if known is None or sample.processing or not known.processing:
            samples[sample.id] = sample
    return tuple(samples.values())


def _sample(slot: _Slot) -> SlotSample:
    slot_id = number(slot.id)
    if slot_id is None:
        raise MalformedBody("an element without an id instead of a slot")
    processing = flag(slot.is_processing)
    if processing is None:
        # Builds before b4029 have a state: 0 is idle, all others are kinds of work.
        processing = bool(number(slot.state))
    next_token = _next_token(slot.next_token)
    parameters = _parameters(slot.params)
    return SlotSample(
        id=slot_id,
        processing=processing,
        task=_first(number(slot.id_task), number(slot.task_id)),
        context=number(slot.n_ctx) or None,
        held=number(slot.n_prompt_tokens),
        decoded=_first(number(next_token.n_decoded), number(next_token.num_tokens_predicted)),
        remaining=number(next_token.n_remain),
        max_tokens=_first(
            number(parameters.max_tokens),
            number(parameters.n_predict),
            number(slot.max_tokens),
            number(slot.n_predict),
        ),
        prompt_processed=number(slot.n_prompt_tokens_processed),
        prompt_cached=number(slot.n_prompt_tokens_cache),
    )


def _parameters(raw: msgspec.Raw) -> _Parameters:
    try:
        return _parameters_decoder.decode(raw)
    except UNREADABLE:
        return _Parameters()


def _next_token(raw: msgspec.Raw) -> _NextToken:
    try:
        decoded = _next_token_decoder.decode(raw)
    except UNREADABLE:
        return _NextToken()
    if isinstance(decoded, list):
        return decoded[0] if decoded else _NextToken()
    return decoded


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
