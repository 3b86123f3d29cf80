"""What a model's KV cache takes by token, from the numbers in its file's header. Pure.

Computed only where the header tells it all. Models whose cache is of another kind (recurrent, compressed, of an
encoder) or whose layers' kinds are decided in llama.cpp's code alone are refused, not guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from kvexporter.facts import GgufHeader, GgufValue
from kvexporter.llama.kv_types import bytes_per_element

MOST_LAYERS = 4_096
MOST_ELEMENTS = 1 << 24
"""Of one layer and token."""

_RECURRENT = ("ssm.", "wkv.", "shortconv.", "full_attention_interval", "token_shift_count", "recurrent_layers")
_COMPRESSED = (
    "attention.kv_lora_rank",
    "attention.key_length_mla",
    "attention.value_length_mla",
    "attention.indexer.",
    "attention.compress",
)
_PERIODS = {"cohere2": 4, "gemma2": 2, "gemma3": 6, "gpt-oss": 2}
"""Architectures whose headers need not say which layers slide: all but every n-th one, as llama.cpp has it."""
_SILENT = frozenset({"exaone4", "gptneo", "llama4", "phi3"})
"""Architectures whose windows llama.cpp decides without the header, by its own rules."""
_SAFE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")


class ShapeError(Exception):
    """The header does not tell what the cache takes; the text says why."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The attention layers of a model that keep all tokens. Elements are of all those layers together, by token."""

    architecture: str
    layers: int
    """Layers with a cache of all tokens."""
    k_elements: int
    v_elements: int
    windowed_layers: int = 0
    """Layers that keep a sliding window only: their cache does not grow with the pool."""

    def bytes_per_token(self, k_type: str, v_type: str) -> Fraction | None:
        """Bytes that one token takes in the pool with these cache types; None for a type that is not known."""
        k, v = bytes_per_element(k_type), bytes_per_element(v_type)
        return None if k is None or v is None else self.k_elements * k + self.v_elements * v

    def cache_bytes(self, k_type: str, v_type: str, cells: int) -> int | None:
        """Bytes of a whole cache of so many cells; None also where a part of it depends on more than that."""
        per_token = self.bytes_per_token(k_type, v_type)
        return None if per_token is None or self.windowed_layers else int(per_token * cells)


def model_shape(header: GgufHeader) -> ModelShape:
    """Read the shape from a header's values. Raises ShapeError."""
    part = header.values.get("split.no")
    if isinstance(part, int) and part > 0:
        raise ShapeError(f"is part {part + 1} of a split model, whose numbers are in its first part")
    architecture = header.values.get("general.architecture")
    if not isinstance(architecture, str) or not _SAFE_NAME.fullmatch(architecture):
        raise ShapeError("does not name the model's architecture")
    values = _Values(header.values, architecture)
    _refuse_other_kinds(values)
    blocks = values.count("block_count", highest=MOST_LAYERS)
    # Layers that only predict further tokens, and layers that use another one's cache, have none.
    layers = blocks - values.count("nextn_predict_layers", 0, highest=blocks)
    cached = layers - values.count("attention.shared_kv_layers", 0, highest=layers)
    heads = values.by_layer("attention.head_count", blocks)
    kv_heads = values.by_layer("attention.head_count_kv", blocks, heads)
    windowed = _windowed(values, blocks)
    head_size = values.count("embedding_length", 0) // heads[0] if heads and heads[0] else 0
    k_size = values.count("attention.key_length", head_size)
    v_size = values.count("attention.value_length", head_size)
    full = [layer for layer in range(cached) if not windowed[layer] and kv_heads[layer]]
    k_elements, v_elements = (sum(kv_heads[layer] for layer in full) * size for size in (k_size, v_size))
    if not full or not 0 < max(k_elements, v_elements) <= MOST_ELEMENTS * len(full) or not min(k_elements, v_elements):
        raise ShapeError(f"has no usable numbers of attention heads ({architecture})")
    return ModelShape(architecture, len(full), k_elements, v_elements, sum(windowed[:cached]))


def training_context(header: GgufHeader) -> int | None:
    """Tokens that the model was trained on; None where the header does not tell."""
    value = header.values.get(f"{header.values.get('general.architecture')}.context_length")
    return value if isinstance(value, int) and value > 0 else None


class _Values:
    """The values of one architecture, by name without its prefix."""

    def __init__(self, values: dict[str, GgufValue], architecture: str) -> None:
        prefix = architecture + "."
        self.architecture = architecture
        self.values = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}

    def count(self, name: str, default: int | None = None, *, highest: int = MOST_ELEMENTS) -> int:
        """A number that is no more than `highest`."""
        value = self.values.get(name, default)
        if value is None:
            raise ShapeError(f"does not tell {self.architecture}.{name}")
        if not isinstance(value, int) or not 0 <= value <= highest:
            raise ShapeError(f"has no usable number as {self.architecture}.{name}")
        return value

    def by_layer(self, name: str, layers: int, default: list[int] | None = None) -> list[int]:
        """One number by layer: the header has a list, or one for all."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, tuple):
            return [self.count(name)] * layers
        numbers = [number for number in value if isinstance(number, int) and 0 <= number <= MOST_ELEMENTS]
        if len(numbers) != len(value) or len(numbers) < layers:
            raise ShapeError(f"has no usable list as {self.architecture}.{name}")
        return numbers


def _refuse_other_kinds(values: _Values) -> None:
    name = values.architecture
    for key in values.values:
        if key.startswith(_RECURRENT):
            raise ShapeError(f"is of a model with recurrent layers ({name}), whose memory is not computed")
        if key.startswith(_COMPRESSED):
            raise ShapeError(f"is of a model with compressed attention ({name}), whose memory is not computed")
    if name in _SILENT:
        raise ShapeError(f"does not tell which layers have a sliding window ({name})")
    if "decoder_block_count" in values.values or values.values.get("attention.causal") is False:
        raise ShapeError(f"is of a model with an encoder ({name}), whose memory is not computed")


def _windowed(values: _Values, blocks: int) -> list[bool]:
    """Which layers keep a sliding window only."""
    name = values.architecture
    pattern = values.values.get("attention.sliding_window_pattern")
    window = values.count("attention.sliding_window", 0)
    if not window and name not in ("gemma2", "gpt-oss", "cohere2"):
        return [False] * blocks
    if isinstance(pattern, tuple):
        if len(pattern) < blocks:
            raise ShapeError(f"has no usable list as {name}.attention.sliding_window_pattern")
        return [bool(slides) for slides in pattern]
    period = _PERIODS.get(name)
    if period is None:
        # Whether the first or the last layer of a period keeps all is the code's own.
        raise ShapeError(f"does not tell which layers have a sliding window ({name})")
    if pattern is not None:
        period = values.count("attention.sliding_window_pattern", highest=MOST_LAYERS)
    return [period == 0 or layer % period < period - 1 for layer in range(blocks)]
