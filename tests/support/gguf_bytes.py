"""Heads of GGUF files, written by hand as the format's document says."""

from __future__ import annotations

import struct
from collections.abc import Sequence

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
_FORMS = {0: "<B", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q", 12: "<d"}


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def number(kind: int, value: float) -> bytes:
    return struct.pack("<I", kind) + struct.pack(_FORMS[kind], value)


def u32(value: int) -> bytes:
    return number(U32, value)


def string(value: str) -> bytes:
    return struct.pack("<I", STRING) + text(value)


def array(kind: int, values: Sequence[float]) -> bytes:
    items = b"".join(struct.pack(_FORMS[kind], value) for value in values)
    return struct.pack("<IIQ", ARRAY, kind, len(values)) + items


def strings(values: Sequence[str]) -> bytes:
    return struct.pack("<IIQ", ARRAY, STRING, len(values)) + b"".join(text(value) for value in values)


def header(pairs: dict[str, bytes], *, version: int = 3, count: int | None = None, magic: bytes = b"GGUF") -> bytes:
    """A file's head with these keys; `count`: how many it claims to have."""
    start = magic + struct.pack("<IQQ", version, 0, len(pairs) if count is None else count)
    return start + b"".join(text(key) + value for key, value in pairs.items())


def llama(**others: bytes) -> dict[str, bytes]:
    """The keys of a model of 40 layers with 8 KV heads of 128: Devstral Small 2 24B's cache."""
    return {
        "general.architecture": string("llama"),
        "llama.block_count": u32(40),
        "llama.embedding_length": u32(5120),
        "llama.attention.head_count": u32(32),
        "llama.attention.head_count_kv": u32(8),
        "llama.attention.key_length": u32(128),
        "llama.attention.value_length": u32(128),
        **others,
    }
