"""Damaged answers of a server: a typed value within bounds, or MalformedBody, whose text quotes nothing."""

from __future__ import annotations

import math
from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from kvexporter.intake import take_answer
from kvexporter.llama.errors import MalformedBody
from kvexporter.llama.exposition import parse_metrics
from kvexporter.llama.props import parse_error, parse_health, parse_models, parse_props
from kvexporter.llama.slots import MOST_SLOTS, parse_slots
from kvexporter.server import Server
from tests.fuzz import corpus
from tests.fuzz.budget import fuzz_settings
from tests.fuzz.invariants import MOST_TOKENS, assert_bounded, assert_renderable, assert_sane
from tests.fuzz.mutations import mutated_bytes, mutated_json

ANY = st.one_of(
    mutated_json(corpus.bodies("slots")),
    mutated_json(corpus.bodies("props")),
    mutated_json(corpus.bodies("models") or corpus.bodies("props")),
    mutated_bytes(corpus.bodies("metrics")),
    mutated_bytes(corpus.bodies("slots")),
    st.binary(max_size=200),
    st.sampled_from((b"[" * 5000, b'{"a":' * 5000, b"<html>", b"null", b"\xef\xbb\xbf[]", b'"', b"[{}]")),
)


@fuzz_settings(3)
@given(ANY)
def test_any_body_gives_a_value_or_malformed(body: bytes) -> None:
    parse_health(body)
    parse_error(body)
    for parse in (parse_slots, parse_props, parse_models, parse_metrics):
        try:
            value = parse(body)
        except MalformedBody as refused:
            assert len(str(refused)) < 200  # noqa: PT017
            continue
        if isinstance(value, tuple):
            assert len(value) <= 4096
            numbers = [n for item in value for n in asdict(item).values()]
        else:
            numbers = list(asdict(value).values())
        for number in numbers:
            if isinstance(number, float):
                assert math.isfinite(number)
                assert number >= 0
            elif isinstance(number, int):
                assert 0 <= number <= MOST_TOKENS
            elif isinstance(number, str):
                assert number.isprintable()
                assert len(number) <= 512


@fuzz_settings(2)
@given(st.lists(st.tuples(st.sampled_from(("slots", "props", "metrics", "health", "models")), ANY), max_size=6))
def test_any_answers_leave_a_model_that_can_be_shown(answers: list[tuple[str, bytes]]) -> None:
    server = Server("s", unit="s.service")
    for at, (endpoint, body) in enumerate(answers):
        take_answer(server, endpoint, body, float(at))  # type: ignore[arg-type]
        assert_sane(server.snapshot(float(at)))
    assert len(server.snapshot(10.0).slots) <= MOST_SLOTS
    assert_bounded(server)
    assert_renderable([server.snapshot(10.0)], 10.0)
