"""Bytes per token of a KV cache, against figures that people and the log of llama-server give."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvexporter.llama.kv_types import bytes_per_element, kv_bytes_per_token

# 40 layers of 8 KV heads of 128: a 24 B model whose users measured it.
LAYERS, WIDTH = 40, 8 * 128


@pytest.mark.parametrize(
    ("cache_type", "block_bytes"),
    [("q8_0", 34), ("q5_1", 24), ("q5_0", 22), ("q4_1", 20), ("q4_0", 18), ("iq4_nl", 18)],
)
def test_a_quantized_type_takes_its_block_of_32_elements(cache_type: str, block_bytes: int) -> None:
    assert bytes_per_element(cache_type) == Fraction(block_bytes, 32)


@pytest.mark.parametrize(("cache_type", "size"), [("f32", 4), ("f16", 2), ("bf16", 2), ("F16", 2)])
def test_a_float_type_takes_its_width(cache_type: str, size: int) -> None:
    assert bytes_per_element(cache_type) == size


def test_an_unknown_type_has_no_size() -> None:
    assert bytes_per_element("turbo3") is None
    assert kv_bytes_per_token(LAYERS, WIDTH, WIDTH, "f16", "turbo3") is None
    assert kv_bytes_per_token(LAYERS, WIDTH, WIDTH, "turbo3", "f16") is None


def test_f16_takes_160_kib_per_token() -> None:
    assert kv_bytes_per_token(LAYERS, WIDTH, WIDTH, "f16", "f16") == 160 * 1024


def test_q8_0_takes_85_kib_per_token_and_not_80() -> None:
    per_token = kv_bytes_per_token(LAYERS, WIDTH, WIDTH, "q8_0", "q8_0")
    assert per_token == 85 * 1024
    assert per_token * 12288 == 1020 * 1024 * 1024


def test_k_and_v_may_have_types_and_widths_of_their_own() -> None:
    assert kv_bytes_per_token(1, 64, 32, "f32", "q4_0") == 64 * 4 + 18


def test_the_size_that_the_log_prints_comes_out() -> None:
    # 3,072 cells of 2 layers of 64: the log says 0.40 MiB for K and 0.80 MiB in all.
    per_token = kv_bytes_per_token(2, 64, 64, "q8_0", "q8_0")
    assert per_token is not None
    assert f"{float(per_token * 3072 / 2**20):.2f}" == "0.80"
    assert f"{float(per_token * 3072 / 2 / 2**20):.3f}" == "0.398"
