"""Bytes per token from a header's numbers: the documents' own arithmetic, and refusals where it would be a guess."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvexporter.facts import GgufHeader, GgufValue
from kvexporter.llama.model_shape import ShapeError, model_shape

DEVSTRAL: dict[str, GgufValue] = {
    "general.architecture": "llama",
    "llama.block_count": 40,
    "llama.embedding_length": 5120,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
    "llama.attention.key_length": 128,
    "llama.attention.value_length": 128,
}
GEMMA3: dict[str, GgufValue] = {
    "general.architecture": "gemma3",
    "gemma3.block_count": 34,
    "gemma3.embedding_length": 2560,
    "gemma3.attention.head_count": 8,
    "gemma3.attention.head_count_kv": 4,
    "gemma3.attention.key_length": 256,
    "gemma3.attention.value_length": 256,
    "gemma3.attention.sliding_window": 1024,
}
GPT_OSS: dict[str, GgufValue] = {
    "general.architecture": "gpt-oss",
    "gpt-oss.block_count": 24,
    "gpt-oss.embedding_length": 2880,
    "gpt-oss.attention.head_count": 64,
    "gpt-oss.attention.head_count_kv": 8,
    "gpt-oss.attention.key_length": 64,
    "gpt-oss.attention.value_length": 64,
    "gpt-oss.attention.sliding_window": 128,
}


def f16(values: dict[str, GgufValue]) -> float:
    each = model_shape(GgufHeader(3, values)).bytes_per_token("f16", "f16")
    assert each is not None
    return float(each)


def refusal(values: dict[str, GgufValue]) -> str:
    with pytest.raises(ShapeError) as refused:
        model_shape(GgufHeader(3, values))
    return str(refused.value)


@pytest.mark.parametrize(
    ("types", "kib"),
    # 40 layers x 8 KV heads x 128 x 2 (K and V) x bytes per element: 160 KiB in f16, 85 KiB in q8_0 (34 by 32).
    [(("f16", "f16"), 160), (("q8_0", "q8_0"), 85), (("q4_0", "q4_0"), 45), (("q8_0", "f16"), 42.5 + 80)],
)
def test_plain_attention_is_layers_times_heads_times_size(types: tuple[str, str], kib: float) -> None:
    shape = model_shape(GgufHeader(3, DEVSTRAL))

    assert shape.bytes_per_token(*types) == kib * 1024
    assert shape.cache_bytes(*types, 12288) == kib * 1024 * 12288
    assert (shape.architecture, shape.layers, shape.windowed_layers) == ("llama", 40, 0)


def test_a_cache_type_that_is_not_known_gives_no_number() -> None:
    shape = model_shape(GgufHeader(3, DEVSTRAL))
    assert shape.bytes_per_token("q3_k", "f16") is None
    assert shape.cache_bytes("f16", "q3_k", 4096) is None


def test_the_head_size_is_the_width_by_the_heads_where_it_is_not_told() -> None:
    values = {name: value for name, value in DEVSTRAL.items() if "length" not in name}
    assert f16(values | {"llama.embedding_length": 4096}) == 40 * 8 * 128 * 2 * 2


def test_without_kv_heads_each_head_has_its_own() -> None:
    values = {name: value for name, value in DEVSTRAL.items() if not name.endswith("head_count_kv")}
    assert f16(values) == 40 * 32 * 128 * 2 * 2


def test_heads_may_differ_by_layer_and_a_layer_with_none_has_no_cache() -> None:
    heads = (8, 0, 4) + (0,) * 37
    shape = model_shape(GgufHeader(3, DEVSTRAL | {"llama.attention.head_count_kv": heads}))

    assert shape.layers == 2
    assert shape.bytes_per_token("f16", "f16") == (8 + 4) * 128 * 2 * 2


def test_keys_and_values_may_differ_in_size() -> None:
    assert f16(DEVSTRAL | {"llama.attention.key_length": 192}) == 40 * 8 * (192 + 128) * 2


def test_layers_that_predict_further_tokens_or_share_a_cache_have_none_of_their_own() -> None:
    assert f16(DEVSTRAL | {"llama.nextn_predict_layers": 1}) == 39 * 8 * 128 * 2 * 2
    assert f16(DEVSTRAL | {"llama.attention.shared_kv_layers": 15}) == 25 * 8 * 128 * 2 * 2


class TestSlidingWindows:
    def test_gemma_3_keeps_all_tokens_in_every_sixth_layer(self) -> None:
        shape = model_shape(GgufHeader(3, GEMMA3))

        assert shape.layers == 5  # layers 5, 11, 17, 23 and 29 of 0 to 33
        assert shape.windowed_layers == 29
        assert shape.bytes_per_token("f16", "f16") == 5 * 4 * 256 * 2 * 2

    def test_gpt_oss_keeps_all_tokens_in_every_other_layer(self) -> None:
        assert f16(GPT_OSS) == 12 * 8 * 64 * 2 * 2

    def test_the_whole_caches_size_depends_on_more_than_the_header(self) -> None:
        assert model_shape(GgufHeader(3, GEMMA3)).cache_bytes("f16", "f16", 4096) is None

    def test_the_headers_own_period_counts(self) -> None:
        # Layers 3, 7, … 31 of 34: every fourth.
        assert f16(GEMMA3 | {"gemma3.attention.sliding_window_pattern": 4}) == 8 * 4 * 256 * 2 * 2

    def test_the_headers_own_list_of_layers_counts_for_any_architecture(self) -> None:
        pattern = (True, True, True, False) * 10
        values: dict[str, GgufValue] = {
            "llama.attention.sliding_window": 4096,
            "llama.attention.sliding_window_pattern": pattern,
        }
        assert f16(DEVSTRAL | values) == 10 * 8 * 128 * 2 * 2

    @pytest.mark.parametrize("pattern", [None, 4])
    def test_of_an_architecture_whose_layers_are_not_known_nothing_is_guessed(self, pattern: int | None) -> None:
        values = DEVSTRAL | {"llama.attention.sliding_window": 4096}
        if pattern is not None:
            values["llama.attention.sliding_window_pattern"] = pattern
        assert "does not tell which layers have a sliding window (llama)" in refusal(values)

    def test_a_window_of_nothing_is_none(self) -> None:
        assert f16(DEVSTRAL | {"llama.attention.sliding_window": 0}) == 160 * 1024


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"llama.ssm.state_size": 128}, "recurrent layers"),
        ({"llama.full_attention_interval": 4}, "recurrent layers"),
        ({"llama.wkv.head_size": 64}, "recurrent layers"),
        ({"llama.shortconv.l_cache": 3}, "recurrent layers"),
        ({"llama.attention.kv_lora_rank": 512}, "compressed attention"),
        ({"llama.attention.key_length_mla": 192}, "compressed attention"),
        ({"llama.attention.indexer.head_count": 64}, "compressed attention"),
        ({"llama.decoder_block_count": 12}, "encoder"),
        ({"llama.attention.causal": False}, "encoder"),
        ({"split.no": 1, "split.count": 3}, "part 2 of a split model"),
    ],
)
def test_other_kinds_of_models_are_refused_and_not_guessed(values: dict[str, GgufValue], why: str) -> None:
    assert why in refusal(DEVSTRAL | values)


def test_an_architecture_whose_windows_are_not_in_the_header_is_refused() -> None:
    values = {name.replace("llama.", "llama4."): value for name, value in DEVSTRAL.items()}
    assert "sliding window (llama4)" in refusal(values | {"general.architecture": "llama4"})


def test_the_first_part_of_a_split_model_has_all_numbers() -> None:
    assert f16(DEVSTRAL | {"split.no": 0, "split.count": 3}) == 160 * 1024


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"general.architecture": 7}, "does not name"),
        ({"general.architecture": "a b\n"}, "does not name"),
        ({"llama.block_count": -1}, "llama.block_count"),
        ({"llama.block_count": 2**40}, "llama.block_count"),
        ({"llama.block_count": 1.5}, "llama.block_count"),
        ({"llama.block_count": 0}, "no usable"),
        ({"llama.attention.head_count": 0, "llama.attention.head_count_kv": 0}, "no usable numbers"),
        ({"llama.attention.head_count_kv": (8,) * 39}, "usable list"),
        ({"llama.attention.head_count_kv": (8.5,) * 40}, "usable list"),
        ({"llama.attention.head_count_kv": (-8,) * 40}, "usable list"),
        ({"llama.attention.key_length": 0}, "no usable numbers"),
        ({"llama.attention.key_length": "128"}, "llama.attention.key_length"),
        ({"llama.attention.sliding_window": 9, "llama.attention.sliding_window_pattern": (1,)}, "usable list"),
    ],
)
def test_numbers_that_cannot_be_are_refused(values: dict[str, GgufValue], why: str) -> None:
    assert why in refusal(DEVSTRAL | values)


@pytest.mark.parametrize("missing", ["general.architecture", "llama.block_count", "llama.attention.head_count"])
def test_a_missing_number_is_named(missing: str) -> None:
    values = {name: value for name, value in DEVSTRAL.items() if name != missing}
    assert missing in refusal(values) or "architecture" in refusal(values)


_numbers = st.integers(-2, 50) | st.integers() | st.floats() | st.text(max_size=4) | st.booleans()


@given(
    st.dictionaries(st.sampled_from(sorted({*DEVSTRAL, *GEMMA3})), _numbers | st.lists(st.integers(-1, 9)).map(tuple))
)
def test_any_numbers_give_a_shape_or_a_reason(values: dict[str, GgufValue]) -> None:
    try:
        shape = model_shape(GgufHeader(3, DEVSTRAL | values))
    except ShapeError:
        return
    assert shape.layers > 0
    assert shape.k_elements > 0
    assert shape.v_elements > 0
