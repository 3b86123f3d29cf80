from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvexporter.llama.errors import MalformedBody
from kvexporter.llama.slots import MOST_SLOTS, SlotSample, parse_slots
from tests.support.paths import RECORDINGS


def one(**fields: Any) -> SlotSample:
    (sample,) = parse_slots(json.dumps([fields]).encode())
    return sample


class TestShapes:
    """One body of each era of the endpoint."""

    def test_first_shape_has_flat_parameters_task_id_and_a_numeric_state(self) -> None:
        body = (
            b'[{"n_ctx":2048,"n_predict":-1,"model":"m","temperature":0.8,"id":0,"task_id":-1,"state":0,"prompt":null,'
            b'"next_token":{"has_next_token":true,"n_remain":-1,"num_tokens_predicted":0,"stopped_eos":false,'
            b'"stopped_word":false,"stopped_limit":false,"stopping_word":""}}]'
        )
        assert parse_slots(body) == (
            SlotSample(id=0, processing=False, task=None, context=2048, held=None, decoded=0, remaining=None),
        )

    def test_first_shape_counts_the_answer_as_num_tokens_predicted(self) -> None:
        sample = one(
            id=2,
            task_id=40,
            state=1,
            n_ctx=2048,
            n_predict=100,
            next_token={"n_remain": 60, "num_tokens_predicted": 40},
        )
        assert sample == SlotSample(
            id=2, processing=True, task=40, context=2048, held=None, decoded=40, remaining=60, max_tokens=100
        )

    def test_id_task_and_n_decoded_of_march_2024(self) -> None:
        body = (
            b'[{"n_ctx":4096,"id":0,"id_task":17,"state":1,"prompt":"x","next_token":{"has_next_token":true,'
            b'"n_remain":50,"n_decoded":14,"stopped_eos":false,"stopped_word":false,"stopped_limit":false,'
            b'"stopping_word":""}}]'
        )
        assert parse_slots(body) == (
            SlotSample(id=0, processing=True, task=17, context=4096, held=None, decoded=14, remaining=50),
        )

    @pytest.mark.parametrize("state", [1, 2, 3, 4, "3"])
    def test_every_state_but_0_is_work(self, state: int | str) -> None:
        assert one(id=0, state=state).processing

    def test_prompt_as_a_list_of_tokens_is_passed_over(self) -> None:
        assert one(id=0, state=1, prompt=[1, 2, {"image": "x"}], n_ctx=512).context == 512

    def test_is_processing_of_november_2024(self) -> None:
        sample = one(id=0, id_task=3, n_ctx=1024, is_processing=True, prompt="p", n_predict=8, next_token={})
        assert (sample.processing, sample.task, sample.max_tokens) == (True, 3, 8)

    def test_nested_parameters_of_december_2024(self) -> None:
        body = (
            b'[{"id":0,"id_task":9,"n_ctx":8192,"speculative":false,"is_processing":true,"non_causal":false,'
            b'"params":{"n_predict":-1,"temperature":0.8},"prompt":"x","next_token":{"has_next_token":true,'
            b'"has_new_line":false,"n_remain":-1,"n_decoded":33,"stopping_word":""}}]'
        )
        assert parse_slots(body) == (
            SlotSample(id=0, processing=True, task=9, context=8192, held=None, decoded=33, remaining=None),
        )

    def test_shape_without_prompts_of_august_2025(self) -> None:
        body = (
            b'[{"id":1,"id_task":0,"n_ctx":65536,"speculative":false,"is_processing":true,"params":{"n_predict":-1,'
            b'"max_tokens":-1},"next_token":{"has_next_token":true,"has_new_line":true,"n_remain":-1,"n_decoded":136}}]'
        )
        assert parse_slots(body) == (
            SlotSample(id=1, processing=True, task=0, context=65536, held=None, decoded=136, remaining=None),
        )

    def test_slot_never_used_has_neither_task_nor_tokens(self) -> None:
        body = b'[{"id":0,"n_ctx":65536,"speculative":false,"is_processing":false}]'
        assert parse_slots(body) == (
            SlotSample(id=0, processing=False, task=None, context=65536, held=None, decoded=None, remaining=None),
        )

    def test_next_token_as_a_list_of_one_of_october_2025(self) -> None:
        body = (
            b'[{"id":0,"n_ctx":65536,"speculative":false,"is_processing":false,"id_task":12,"params":{"max_tokens":256},'
            b'"next_token":[{"has_next_token":false,"has_new_line":true,"n_remain":0,"n_decoded":256}]}]'
        )
        assert parse_slots(body) == (
            SlotSample(
                id=0, processing=False, task=12, context=65536, held=None, decoded=256, remaining=0, max_tokens=256
            ),
        )

    def test_held_tokens_of_may_2026_are_not_added_to_the_answer(self) -> None:
        body = (
            b'[{"id":0,"n_ctx":131072,"speculative":false,"is_processing":true,"id_task":9440,"n_prompt_tokens":11128,'
            b'"n_prompt_tokens_processed":167,"n_prompt_tokens_cache":10961,"params":{"seed":4294967295,'
            b'"max_tokens":-1},"next_token":[{"has_next_token":true,"has_new_line":false,"n_remain":-1,"n_decoded":7}]}]'
        )
        assert parse_slots(body) == (
            SlotSample(
                id=0,
                processing=True,
                task=9440,
                context=131072,
                held=11128,
                decoded=7,
                remaining=None,
                prompt_processed=167,
                prompt_cached=10961,
            ),
        )

    def test_idle_slot_of_august_2026_keeps_its_tokens_while_its_answer_is_reset(self) -> None:
        sample = one(
            id=1,
            n_ctx=4096,
            is_processing=False,
            id_task=4,
            n_prompt_tokens=900,
            n_prompt_tokens_processed=0,
            n_prompt_tokens_cache=0,
            params={"max_tokens": 100},
            next_token=[{"n_remain": -1, "n_decoded": 0}],
        )
        assert (sample.held, sample.decoded, sample.prompt_processed) == (900, 0, 0)


class TestOddities:
    def test_no_slots_are_an_empty_answer_and_no_error(self) -> None:
        assert parse_slots(b"[]") == ()

    @pytest.mark.parametrize("next_token", [[], {}, None, "x", 7, [7], [[]]])
    def test_next_token_without_content_leaves_the_rest(self, next_token: object) -> None:
        sample = one(id=0, n_ctx=64, is_processing=True, next_token=next_token)
        assert (sample.context, sample.decoded, sample.remaining) == (64, None, None)

    @pytest.mark.parametrize("params", [[], None, "x", 7])
    def test_params_of_another_type_leave_the_rest(self, params: object) -> None:
        assert one(id=0, n_ctx=64, params=params).context == 64

    def test_context_of_0_is_unknown(self) -> None:
        assert one(id=0, n_ctx=0).context is None

    def test_ids_need_not_start_at_0(self) -> None:
        assert [sample.id for sample in parse_slots(b'[{"id":7},{"id":5}]')] == [7, 5]

    def test_task_minus_1_is_no_task(self) -> None:
        assert one(id=0, id_task=-1).task is None

    def test_numbers_may_be_strings_or_floats(self) -> None:
        sample = one(id="3", id_task="12", n_ctx="4096", n_prompt_tokens=17.0, is_processing="true")
        assert (sample.id, sample.task, sample.context, sample.held, sample.processing) == (3, 12, 4096, 17, True)

    @pytest.mark.parametrize("value", [-1, -5, 2**40 + 1, 2**70, 1e300, 0.5, True, "", "many", [1], {"a": 1}, None])
    def test_nonsense_number_is_absent_and_costs_nothing_else(self, value: object) -> None:
        sample = one(id=0, n_ctx=64, n_prompt_tokens=value)
        assert (sample.held, sample.context) == (None, 64)

    def test_greatest_number_is_2_to_the_40(self) -> None:
        assert one(id=0, n_prompt_tokens=2**40).held == 2**40

    def test_exponent_beyond_all_numbers_is_absent(self) -> None:
        (sample,) = parse_slots(b'[{"id":0,"n_prompt_tokens":1e999,"n_ctx":64}]')
        assert (sample.held, sample.context) == (None, 64)

    def test_processing_slot_beats_an_idle_one_of_the_same_id(self) -> None:
        busy = {"id": 0, "is_processing": True, "n_prompt_tokens": 5}
        idle = {"id": 0, "is_processing": False, "n_prompt_tokens": 9}
        for body in ([busy, idle], [idle, busy]):
            (sample,) = parse_slots(json.dumps(body).encode())
            assert (sample.processing, sample.held) == (True, 5)

    def test_later_of_two_equal_slots_counts(self) -> None:
        (sample,) = parse_slots(b'[{"id":0,"n_prompt_tokens":5},{"id":0,"n_prompt_tokens":9}]')
        assert sample.held == 9

    def test_at_most_1024_slots_are_kept(self) -> None:
        body = json.dumps([{"id": number} for number in range(5000)]).encode()
        assert len(parse_slots(body)) == MOST_SLOTS == 1024

    def test_order_of_the_fields_does_not_matter(self) -> None:
        fields = {"id": 0, "n_ctx": 64, "is_processing": True, "next_token": [{"n_decoded": 1}], "id_task": 2}
        assert one(**fields) == one(**dict(reversed(fields.items())))


class TestMalformed:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"  \n",
            b"null",
            b"7",
            b'"slots"',
            b"{}",
            b"[1,2]",
            b"[[]]",
            b"[{}]",
            b'[{"n_ctx":64}]',
            b'[{"id":-1}]',
            b'[{"id":0,"n_ctx":20',
            b"[" * 100_000,
            b'[{"id":0,"params":' + b'{"a":' * 100_000,
            b"\xff\xfe\x00",
            b"[]]",
        ],
        ids=lambda body: repr(body[:24]),
    )
    def test_anything_but_an_array_of_slots_is_refused(self, body: bytes) -> None:
        with pytest.raises(MalformedBody):
            parse_slots(body)

    def test_error_object_is_named_by_its_type(self) -> None:
        body = (
            b'{"error":{"code":501,"message":"This server does not support slots endpoint. Start it with `--slots`",'
            b'"type":"not_supported_error"}}'
        )
        with pytest.raises(MalformedBody, match=r"an error \(not_supported_error\)"):
            parse_slots(body)

    def test_html_is_named(self) -> None:
        with pytest.raises(MalformedBody, match="HTML"):
            parse_slots(b"\n<!doctype html><title>502 Bad Gateway</title>")

    def test_reason_never_quotes_the_body(self) -> None:
        with pytest.raises(MalformedBody) as caught:
            parse_slots(b'[{"id":0,"prompt":"SECRET words","params":{"stop":["SECRET"]')
        assert "SECRET" not in f"{caught.value!r} {caught.value.reason}"
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_prompt_text_is_never_held() -> None:
    secret = "SECRET" + "-prompt-" * 40
    slot = {
        "id": 0,
        "id_task": 9,
        "n_ctx": 4096,
        "is_processing": True,
        "prompt": secret,
        "generated": secret,
        "params": {"grammar": secret, "stop": [secret], "max_tokens": 5, "n_predict": 5},
        "next_token": [{"n_decoded": 3, "stopping_word": secret}],
    }
    (sample,) = parse_slots(json.dumps([slot]).encode())
    assert all(type(value) in (int, bool, type(None)) for value in astuple(sample))
    assert (sample.decoded, sample.max_tokens) == (3, 5)


@pytest.mark.parametrize("build", ["b6666", "b8635", "b11434"])
def test_every_recorded_body_is_read_and_tells_what_it_holds(build: str) -> None:
    read = 0
    for polls in sorted((RECORDINGS / build).glob("*/polls.jsonl")):
        for line in polls.read_text().splitlines():
            answer = json.loads(line).get("/slots", {})
            if answer.get("status") != 200:
                continue
            body = answer["body"]
            samples = parse_slots(json.dumps(body).encode())
            read += 1
            assert [s.id for s in samples] == [slot["id"] for slot in body]
            assert [s.processing for s in samples] == [slot["is_processing"] for slot in body]
            assert [s.context for s in samples] == [slot["n_ctx"] for slot in body]
            assert [s.held for s in samples] == [slot.get("n_prompt_tokens") for slot in body]
            for sample, slot in zip(samples, body, strict=True):
                token = slot.get("next_token")
                token = token[0] if isinstance(token, list) else token
                assert sample.decoded == (None if token is None else token["n_decoded"])
    assert read > 10


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
slot_like = st.dictionaries(
    st.sampled_from(["id", "id_task", "state", "is_processing", "n_ctx", "n_prompt_tokens", "next_token", "params"]),
    json_values,
)


@given(st.lists(slot_like, max_size=4))
def test_no_json_array_of_objects_raises_anything_but_malformed_body(slots: list[dict[str, Any]]) -> None:
    try:
        samples = parse_slots(json.dumps(slots).encode())
    except MalformedBody:
        return
    for sample in samples:
        for value in (sample.context, sample.held, sample.decoded, sample.remaining, sample.task, sample.max_tokens):
            assert value is None or 0 <= value <= 2**40


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_malformed_body(body: bytes) -> None:
    with suppress(MalformedBody):
        parse_slots(body)


@given(st.integers(min_value=0, max_value=400))
def test_truncated_body_is_refused_wherever_it_ends(length: int) -> None:
    whole = (
        b'[{"id":0,"id_task":9,"n_ctx":8192,"is_processing":true,"params":{"n_predict":-1,"stop":["a]"]},'
        b'"next_token":[{"n_remain":-1,"n_decoded":33}]},{"id":1,"n_ctx":8192,"is_processing":false}]'
    )
    if length < len(whole):
        with pytest.raises(MalformedBody):
            parse_slots(whole[:length])
