"""A random llama model small enough to be written by a test and to run at thousands of tokens a second."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from tests.support.paths import CACHE

LAYERS = 2
EMBEDDING = 128
HEADS = 4
KV_HEADS = 2
HEAD_SIZE = EMBEDDING // HEADS
FEED_FORWARD = 256
TRAINING_CONTEXT = 262_144

SPECIALS = ("<unk>", "<s>", "</s>")
BYTE_TOKENS = range(len(SPECIALS), len(SPECIALS) + 256)
"""Token ids that stand for single bytes: answers made of them need not be UTF-8."""
TEXT_TOKENS = range(BYTE_TOKENS.stop, BYTE_TOKENS.stop + 121)
VOCABULARY = TEXT_TOKENS.stop

KV_BYTES_PER_TOKEN_F16 = LAYERS * KV_HEADS * HEAD_SIZE * 2 * 2
"""Both K and V, two bytes an element."""


@dataclass(frozen=True, slots=True)
class Size:
    """What decides about the KV cache."""

    layers: int = LAYERS
    heads: int = HEADS
    kv_heads: int = KV_HEADS
    head_size: int = HEAD_SIZE

    @property
    def kv_bytes_per_token_f16(self) -> int:
        return self.layers * self.kv_heads * self.head_size * 2 * 2


WIDE = Size(layers=16, heads=8, kv_heads=8, head_size=128)
"""64 KiB a token in f16, so that the cache outweighs all else that grows with the pool."""


def tiny_model() -> Path:
    """The model's file, written at the first call; it is the same for all tests."""
    return _model("tiny-v1.gguf", Size())


def wide_model() -> Path:
    """A model with a large KV cache, as slow as it is for that."""
    return _model("wide-v1.gguf", WIDE)


def _model(file: str, size: Size) -> Path:
    path = CACHE / file
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        handle, name = tempfile.mkstemp(dir=CACHE, suffix=".gguf")
        os.close(handle)
        _write(Path(name), size)
        Path(name).chmod(0o644)  # servers in units run as other users
        Path(name).rename(path)
    return path


def _write(path: Path, size: Size) -> None:
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_context_length(TRAINING_CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(size.layers)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.kv_heads)
    writer.add_rope_dimension_count(size.head_size)
    if size.head_size * size.heads != EMBEDDING:
        writer.add_key_length(size.head_size)
        writer.add_value_length(size.head_size)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)

    letters = [f"▁{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(len(TEXT_TOKENS))]
    kinds = gguf.TokenType
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), *letters])
    writer.add_token_scores([0.0] * (len(SPECIALS) + 256) + [-float(i) for i in range(len(letters))])
    writer.add_token_types(
        [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256, *[kinds.NORMAL] * len(letters)]
    )
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)

    def tensor(name: str, *shape: int) -> None:
        writer.add_tensor(name, random.normal(0, 0.05, shape).astype(np.float32))

    tensor("token_embd.weight", VOCABULARY, EMBEDDING)
    tensor("output.weight", VOCABULARY, EMBEDDING)
    writer.add_tensor("output_norm.weight", np.ones(EMBEDDING, np.float32))
    for layer in range(size.layers):
        block = f"blk.{layer}"
        tensor(f"{block}.attn_q.weight", size.heads * size.head_size, EMBEDDING)
        tensor(f"{block}.attn_k.weight", size.kv_heads * size.head_size, EMBEDDING)
        tensor(f"{block}.attn_v.weight", size.kv_heads * size.head_size, EMBEDDING)
        tensor(f"{block}.attn_output.weight", EMBEDDING, size.heads * size.head_size)
        tensor(f"{block}.ffn_gate.weight", FEED_FORWARD, EMBEDDING)
        tensor(f"{block}.ffn_up.weight", FEED_FORWARD, EMBEDDING)
        tensor(f"{block}.ffn_down.weight", EMBEDDING, FEED_FORWARD)
        writer.add_tensor(f"{block}.attn_norm.weight", np.ones(EMBEDDING, np.float32))
        writer.add_tensor(f"{block}.ffn_norm.weight", np.ones(EMBEDDING, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
