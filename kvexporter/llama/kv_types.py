"""Bytes that a token takes in a KV cache, by the cache's types (ggml's block formats)."""

from __future__ import annotations

from fractions import Fraction

# Quantized types store blocks of 32 elements: scales (and offsets) of the block, then the elements.
_BYTES_PER_ELEMENT = {
    "f32": Fraction(4),
    "f16": Fraction(2),
    "bf16": Fraction(2),
    "q8_0": Fraction(34, 32),
    "q5_1": Fraction(24, 32),
    "q5_0": Fraction(22, 32),
    "q4_1": Fraction(20, 32),
    "q4_0": Fraction(18, 32),
    "iq4_nl": Fraction(18, 32),
}


def bytes_per_element(cache_type: str) -> Fraction | None:
    """Bytes per element of a cache type as `-ctk` and the log name it; None for a type that is not known."""
    return _BYTES_PER_ELEMENT.get(cache_type.lower())


def kv_bytes_per_token(layers: int, k_width: int, v_width: int, k_type: str, v_type: str) -> Fraction | None:
    """Bytes of KV cache per token; None if a type is not known.

    `k_width` and `v_width` are elements per layer and token: number of KV heads times head dimension. Right for
    plain attention only: sliding windows, recurrent layers and compressed (MLA) attention hold other amounts.
    """
    k, v = bytes_per_element(k_type), bytes_per_element(v_type)
    if k is None or v is None:
        return None
    return layers * (k_width * k + v_width * v)
