"""Bytes of the KV cache: from the log where it has size lines, else from the model file's header."""

from __future__ import annotations

import pytest

from kvexporter.kv_bytes import KvBytes, kv_bytes
from kvexporter.llama.launch import LaunchOptions, parse_launch
from kvexporter.llama.model_shape import ModelShape
from tests.support.model import LogStory

# 2 layers x 2 KV heads x 32: the model of the recordings and tests. 512 bytes a token in f16, 272 in q8_0.
TINY = ModelShape("llama", layers=2, k_elements=128, v_elements=128)
SIZE_LINE = (
    "llama_kv_cache: size =    2.00 MiB (  4096 cells,   2 layers,  4/1 seqs), "
    + "K (f16):    1.00 MiB, V (f16):    1.00 MiB"
)
QUIET = "0.00.019.302 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'"


def options(*arguments: str, environment: dict[str, str] | None = None) -> LaunchOptions:
    return parse_launch(arguments, {} if environment is None else environment)


def told(story: LogStory, shape: ModelShape | None, launch: LaunchOptions | None) -> KvBytes:
    story.server.launched_with(launch)
    story.server.model_read(shape)
    shown = story.server.snapshot(story.at)
    return KvBytes(
        shown.kv_cache_bytes, shown.kv_bytes_per_token, shown.kv_bytes_source, shown.kv_header_bytes_per_token
    )


@pytest.mark.parametrize(
    ("types", "each"), [((), 512), (("-ctk", "q8_0", "-ctv", "q8_0"), 272), (("-ctk", "q8_0"), 392)]
)
def test_without_size_lines_header_types_and_capacity_tell(types: tuple[str, ...], each: int) -> None:
    story = LogStory().lines(QUIET)
    launch = options("-m", "x.gguf", "-c", "4096", *types)
    assert told(story, TINY, launch) == KvBytes(4096 * each, each, "header")


def test_cache_types_of_the_environment_count() -> None:
    launch = options("-m", "x.gguf", environment={"LLAMA_ARG_CACHE_TYPE_K": "q8_0", "LLAMA_ARG_CACHE_TYPE_V": "q8_0"})
    assert told(LogStory().lines(QUIET), TINY, launch).per_token == 272


def test_the_logs_own_size_lines_win() -> None:
    story = LogStory().lines(SIZE_LINE)
    assert told(story, TINY, options("-c", "4096")) == KvBytes(2 << 20, 512.0, "journal")


def test_what_differs_by_more_than_two_percent_is_told_too() -> None:
    story = LogStory().lines(SIZE_LINE)
    other = ModelShape("llama", layers=2, k_elements=128, v_elements=134)  # 524 bytes: 2.3 % more
    alike = ModelShape("llama", layers=2, k_elements=128, v_elements=133)  # 522 bytes: 1.95 % more

    assert told(story, other, options()) == KvBytes(2 << 20, 512.0, "journal", 524.0)
    assert told(story, alike, options()) == KvBytes(2 << 20, 512.0, "journal")


def test_an_environment_that_cannot_be_read_may_name_other_types() -> None:
    unreadable = parse_launch(["-c", "4096"], None)
    assert told(LogStory().lines(QUIET), TINY, unreadable) == KvBytes()
    given = parse_launch(["-ctk", "q8_0", "-ctv", "q8_0"], None)
    assert told(LogStory().lines(QUIET), TINY, given).per_token == 272


def test_what_is_not_known_is_absent() -> None:
    quiet = LogStory().lines(QUIET)
    assert told(quiet, None, options()) == KvBytes()
    assert told(quiet, TINY, None) == KvBytes()
    assert told(quiet, TINY, options("-ctk", "turbo3")) == KvBytes()
    windowed = ModelShape("gemma3", layers=2, k_elements=128, v_elements=128, windowed_layers=10)
    assert told(quiet, windowed, options("-c", "4096")) == KvBytes(None, 512.0, "header")
    assert kv_bytes(LogStory().server._parts.shape.startup, TINY, options(), None) == KvBytes(None, 512.0, "header")


def test_a_split_pools_bytes_are_of_all_its_buffers() -> None:
    story = LogStory().lines(
        "0.00.019.302 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 1024, kv_unified = 'false'"
    )
    assert told(story, TINY, options("-c", "4096", "-np", "4")).cache == 4096 * 512
