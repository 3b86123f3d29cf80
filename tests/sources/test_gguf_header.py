"""A GGUF file's header: numbers and short texts, whatever the vocabulary's size, and nothing of garbage."""

from __future__ import annotations

import struct
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvexporter.facts import GgufHeader, GgufValue
from kvexporter.sources import gguf_header
from kvexporter.sources.gguf_header import MAX_LIST, MAX_TEXT, HeaderError, read_header
from tests.support.gguf_bytes import BOOL, F32, I32, U32, U64, array, header, llama, number, string, strings, text, u32
from tests.support.tiny_model import KV_HEADS, LAYERS, VOCABULARY, tiny_model


def read(data: bytes, size: int | None = None) -> GgufHeader:
    return read_header(BytesIO(data), len(data) if size is None else size)


def test_a_file_that_llama_cpp_loads_tells_its_numbers() -> None:
    path = tiny_model()
    with path.open("rb", buffering=0) as file:
        found = read_header(file, path.stat().st_size)

    assert found.version == 3
    assert found.values["general.architecture"] == "llama"
    assert found.values["llama.block_count"] == LAYERS
    assert found.values["llama.attention.head_count_kv"] == KV_HEADS
    assert "tokenizer.ggml.tokens" not in found.values
    assert len(found.values["tokenizer.ggml.scores"]) == VOCABULARY  # type: ignore[arg-type]


def test_all_scalars_that_the_gguf_package_reads_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "all.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        getattr(writer, f"add_{name}")(f"n.{name}", 100)
    writer.add_float32("n.float32", 0.5)
    writer.add_float64("n.float64", 0.25)
    writer.add_bool("n.bool", True)
    writer.add_string("n.string", "größe")
    writer.add_array("n.array", [1, 2, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    theirs = {
        key: field.contents() for key, field in gguf.GGUFReader(str(path)).fields.items() if not key.startswith("GGUF.")
    }

    ours = read(path.read_bytes()).values

    assert {key: list(value) if isinstance(value, tuple) else value for key, value in ours.items()} == theirs


@pytest.mark.parametrize("version", [2, 3])
def test_numbers_lists_and_short_texts_are_kept(version: int) -> None:
    pairs = {
        "a": u32(7),
        "b": number(I32, -7),
        "c": number(U64, 2**40),
        "d": number(F32, 1.5),
        "e": number(BOOL, 1),
        "f": string("text"),
        "g": array(BOOL, [True, False]),
        "h": array(U32, [8, 0, 4]),
        "i": array(U32, []),
    }
    numbers: dict[str, GgufValue] = {"a": 7, "b": -7, "c": 2**40, "d": 1.5, "e": True}
    others: dict[str, GgufValue] = {"f": "text", "g": (True, False), "h": (8, 0, 4), "i": ()}
    assert read(header(pairs, version=version)) == GgufHeader(version, numbers | others)


def test_what_comes_after_the_header_is_never_read() -> None:
    data = header({"a": u32(1)})
    assert read(data + b"\xff" * 1000).values == {"a": 1}


def test_long_texts_and_vocabularies_are_passed_over_and_what_follows_is_read() -> None:
    tokens = [f"token {n} " + "x" * (n % 50) for n in range(100_000)]  # several chunks of a megabyte
    pairs = {
        "tokenizer.chat_template": string("x" * (MAX_TEXT + 1)),
        "tokenizer.ggml.tokens": strings(tokens),
        "tokenizer.ggml.long": strings(["x" * 3_000_000, "", "y"]),
        "tokenizer.ggml.scores": array(F32, [0.0] * (MAX_LIST + 1)),
        "tokenizer.ggml.types": array(U32, [1] * 1_000_000),
        "llama.block_count": u32(40),
    }
    assert read(header(pairs)).values == {"llama.block_count": 40}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends within its header"),
        (b"GGU", "ends within its header"),
        (b"ggjt" + b"\0" * 20, "is not a GGUF file"),
        (b"\0" * 100, "is not a GGUF file"),
        (header({}, version=1), "of version 1"),
        (header({}, version=4), "of version 4"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (header({"a": u32(1)}, count=2), "ends within its header"),
        (header({}, count=2**60), "more key-value pairs"),
        (header({"a": u32(1)})[:-1], "ends within its header"),
        (header({"a": struct.pack("<I", 99)}), "unknown type"),
        (header({"a": struct.pack("<IIQ", 9, 9, 1)}), "unknown type"),
        (header({"a": struct.pack("<IIQ", 9, U32, 2**62)}), "ends within its header"),
        (header({"a": struct.pack("<IIQ", 9, 8, 2**62)}), "ends within its header"),
        (header({"a": struct.pack("<IQ", 8, 2**63)}), "ends within its header"),
        (header({"k" * 65_536: u32(1)}), "key that is too long"),
    ],
)
def test_garbage_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(HeaderError, match=why):
        read(data)


def test_a_header_beyond_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_header, "MAX_BYTES", 100_000)
    data = header({"t": strings(["x" * 1000] * 100), "llama.block_count": u32(40)})

    with pytest.raises(HeaderError, match="too large"):
        read(data)


def test_bytes_that_are_not_utf_8_harm_nobody() -> None:
    data = header({"a": struct.pack("<I", 8) + text(b"\xff\xfe"), "b": u32(1)})
    assert read(data).values == {"a": "\ufffd\ufffd", "b": 1}


@given(st.binary(max_size=400))
def test_any_bytes_give_a_header_or_a_reason(data: bytes) -> None:
    for candidate in (data, header({}, count=3) + data, header(llama())[: len(data)] + data):
        with suppress(HeaderError):
            read(candidate)


@given(st.integers(0, 600), st.integers(0, 255))
def test_a_changed_byte_gives_a_header_or_a_reason(at: int, byte: int) -> None:
    data = bytearray(header(llama(t=strings(["a", "b"]), f=array(F32, [1.0, 2.0]))))
    data[at % len(data)] = byte
    with suppress(HeaderError):
        read(bytes(data))
