from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvexporter.llama.errors import MalformedBody
from kvexporter.llama.exposition import UpstreamMetrics, parse_metrics
from tests.support.paths import RECORDINGS


def recorded(recording: str) -> str:
    body = json.loads((RECORDINGS / recording / "endpoints.json").read_text())["/metrics"]["body"]
    assert isinstance(body, str)
    return body


class TestNames:
    @pytest.mark.parametrize(
        ("name", "field"),
        [
            ("prompt_tokens_total", "prompt_tokens_total"),
            ("prompt_tokens_cached_total", "prompt_tokens_cached_total"),
            ("prompt_seconds_total", "prompt_seconds_total"),
            ("tokens_predicted_total", "predicted_tokens_total"),
            ("tokens_predicted_seconds_total", "predicted_seconds_total"),
            ("n_decode_total", "decode_calls_total"),
            ("spec_decode_num_draft_tokens_total", "draft_tokens_total"),
            ("spec_decode_num_accepted_tokens_total", "draft_accepted_tokens_total"),
            ("n_busy_slots_per_decode", "busy_slots_per_decode"),
            ("n_past_max", "largest_sequence_tokens"),
            ("n_tokens_max", "largest_sequence_tokens"),
            ("requests_processing", "requests_processing"),
            ("requests_deferred", "requests_deferred"),
            ("kv_cache_usage_ratio", "kv_cache_usage_ratio"),
            ("kv_cache_tokens", "kv_cache_tokens"),
        ],
    )
    def test_each_upstream_name_has_its_field(self, name: str, field: str) -> None:
        assert parse_metrics(f"llamacpp:{name} 7\n") == UpstreamMetrics(**{field: 7.0})

    @pytest.mark.parametrize(
        "name", ["prompt_tokens_seconds", "predicted_tokens_seconds", "spec_decode_num_drafts_total"]
    )
    def test_averages_between_scrapes_and_unknown_names_are_left_out(self, name: str) -> None:
        assert parse_metrics(f"llamacpp:{name} 7") == UpstreamMetrics()


class TestValues:
    @pytest.mark.parametrize("value", ["nan", "-nan", "NaN", "inf", "+Inf", "-inf", "infinity", "-3"])
    def test_value_that_means_nothing_is_left_out_and_the_rest_kept(self, value: str) -> None:
        body = f"llamacpp:n_busy_slots_per_decode {value}\nllamacpp:requests_deferred 2\n"
        assert parse_metrics(body) == UpstreamMetrics(requests_deferred=2.0)

    @pytest.mark.parametrize("value", ["", "x", "1_000", "0x10", "٣", "1,5", "1 2 3"])
    def test_line_that_is_no_sample_is_passed_over(self, value: str) -> None:
        body = f"llamacpp:n_tokens_max {value}\nllamacpp:requests_deferred 2\n"
        assert parse_metrics(body) == UpstreamMetrics(requests_deferred=2.0)

    def test_six_digit_exponents_are_read(self) -> None:
        assert parse_metrics("llamacpp:prompt_tokens_total 1.42315e+06").prompt_tokens_total == 1423150

    def test_zero_is_a_value(self) -> None:
        assert parse_metrics("llamacpp:requests_processing 0").requests_processing == 0

    def test_only_nan_is_still_an_answer_of_llama_server(self) -> None:
        assert parse_metrics("llamacpp:n_busy_slots_per_decode -nan") == UpstreamMetrics()


class TestLayout:
    def test_types_and_help_do_not_matter(self) -> None:
        body = "# HELP llamacpp:n_tokens_max x\n# TYPE llamacpp:n_tokens_max counter\nllamacpp:n_tokens_max 11294\n"
        assert parse_metrics(body).largest_sequence_tokens == 11294

    def test_labels_are_ignored_whatever_they_hold(self) -> None:
        body = 'llamacpp:prompt_tokens_total{model="a } b\\"{ 9",x="y"} 5 1700000000000\nllamacpp:requests_deferred{} 1'
        assert parse_metrics(body) == UpstreamMetrics(prompt_tokens_total=5.0, requests_deferred=1.0)

    def test_tabs_spaces_and_carriage_returns_are_no_obstacle(self) -> None:
        body = b"  llamacpp:n_decode_total\t12  \r\nllamacpp:requests_deferred   3\r\n"
        assert parse_metrics(body) == UpstreamMetrics(decode_calls_total=12.0, requests_deferred=3.0)

    def test_first_of_several_samples_of_a_name_counts(self) -> None:
        assert parse_metrics("llamacpp:n_tokens_max 1\nllamacpp:n_tokens_max 2").largest_sequence_tokens == 1

    def test_other_programs_metrics_between_them_are_passed_over(self) -> None:
        assert parse_metrics("go_info 1\nllamacpp:n_tokens_max 4\nup 1").largest_sequence_tokens == 4

    def test_body_escaped_as_one_json_string_is_read_like_the_plain_one(self) -> None:
        plain = recorded("b8635/unified_overflow")
        assert parse_metrics(json.dumps(plain).encode()) == parse_metrics(plain)

    def test_truncated_json_string_gives_what_it_holds(self) -> None:
        escaped = json.dumps("llamacpp:n_tokens_max 4\nllamacpp:requests_deferred 1\nllamacpp:n_decode_total 9\n")
        metrics = parse_metrics(escaped[: escaped.index("n_decode")])
        assert metrics == UpstreamMetrics(largest_sequence_tokens=4.0, requests_deferred=1.0)

    def test_bytes_that_are_no_text_cost_only_their_line(self) -> None:
        assert parse_metrics(b"\xff\xfe\x00\nllamacpp:n_tokens_max 4\n").largest_sequence_tokens == 4


class TestRecordings:
    def test_b5541(self) -> None:
        assert parse_metrics(recorded("b5541/unified_overflow")) == UpstreamMetrics(
            prompt_tokens_total=3600,
            prompt_seconds_total=1.202,
            predicted_tokens_total=1600,
            predicted_seconds_total=2.246,
            decode_calls_total=402,
            busy_slots_per_decode=3.98259,
            requests_processing=0,
            requests_deferred=0,
        )

    def test_b6666_calls_the_longest_sequence_n_past_max(self) -> None:
        assert parse_metrics(recorded("b6666/unified_overflow")).largest_sequence_tokens == 1023

    def test_b11434_counts_cached_and_drafted_tokens(self) -> None:
        metrics = parse_metrics(recorded("b11434/unified_overflow"))
        assert (metrics.prompt_tokens_total, metrics.prompt_tokens_cached_total) == (3600, 0)
        assert (metrics.draft_tokens_total, metrics.draft_accepted_tokens_total) == (0, 0)
        assert metrics.largest_sequence_tokens == 1025

    def test_builds_of_2024_tell_the_cache_in_use(self) -> None:
        metrics = parse_metrics("llamacpp:kv_cache_usage_ratio 0.431641\nllamacpp:kv_cache_tokens 1768\n")
        assert (metrics.kv_cache_usage_ratio, metrics.kv_cache_tokens) == (0.431641, 1768)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b"<html><body>llamacpp</body></html>", "HTML"),
        (b'{"error":{"code":501,"message":"x","type":"not_supported_error"}}', "not_supported_error"),
        (b"# HELP llamacpp:n_tokens_max x\n", "something else"),
        (b"go_info 1\n", "something else"),
        (b'"<html>"', "something else"),
    ],
)
def test_body_without_any_sample_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(MalformedBody, match=reason):
        parse_metrics(body)


@given(st.binary(max_size=300) | st.text(max_size=200))
def test_nothing_raises_anything_but_malformed_body(body: bytes | str) -> None:
    with suppress(MalformedBody):
        parse_metrics(body)


words = st.sampled_from(
    ["llamacpp:", "n_tokens_max", "requests_deferred", "{", "}", '"', " ", "\n", "1", "e+", "nan", "-", "."]
)


@given(st.lists(words, max_size=30).map("".join))
def test_nothing_that_resembles_samples_gives_a_value_that_is_not_finite(body: str) -> None:
    try:
        metrics = parse_metrics(body)
    except MalformedBody:
        return
    for field in fields(metrics):
        value = getattr(metrics, field.name)
        assert value is None or (math.isfinite(value) and value >= 0)
