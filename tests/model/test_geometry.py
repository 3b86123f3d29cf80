"""The pool's shape out of the start-up lines of every build, and out of several sources together."""

from __future__ import annotations

import pytest

from kvexporter.geometry import StartupLog, merge
from kvexporter.llama.log import parse_line
from kvexporter.pool_geometry import Geometry


def read(text: str) -> StartupLog:
    log = StartupLog()
    for line in text.splitlines():
        parsed = parse_line(line.strip().encode())
        if parsed is not None and parsed.event is not None:
            log.observe(parsed.event)
    return log


def shape(text: str) -> tuple[int | None, int | None, int | None, bool | None]:
    geometry = read(text).geometry()
    return geometry.slots, geometry.slot_context, geometry.capacity, geometry.shared


def test_one_line_of_a_newer_build_tells_a_unified_pool() -> None:
    assert shape("srv    load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'") == (
        4,
        4096,
        4096,
        True,
    )


def test_one_line_of_a_newer_build_tells_a_split_pool() -> None:
    assert shape("srv    load_model: initializing, n_slots = 3, n_ctx_slot = 3072, kv_unified = 'false'") == (
        3,
        3072,
        9216,
        False,
    )


def test_a_lone_slot_shares_with_nobody() -> None:
    assert shape("srv    load_model: initializing, n_slots = 1, n_ctx_slot = 8192, kv_unified = 'true'") == (
        1,
        8192,
        8192,
        False,
    )


def test_a_cap_per_slot_names_the_whole_pool() -> None:
    log = """
    srv    load_model: loading model 'm.gguf'
    srv    load_model: capping per-slot context (2048) to --kv-unified-per-slot (1024)
    srv    load_model: initializing, n_slots = 4, n_ctx_slot = 1024, kv_unified = 'true'
    """
    assert shape(log) == (4, 1024, 2048, True)


def test_of_two_caps_the_first_names_the_pool() -> None:
    log = """
    srv    load_model: capping per-slot context (1048576) to --kv-unified-per-slot (524288)
    srv    load_model: the slot context (524288) exceeds the training context of the model (262144) - capping
    srv    load_model: initializing, n_slots = 4, n_ctx_slot = 262144, kv_unified = 'true'
    """
    assert shape(log) == (4, 262144, 1048576, True)


def test_a_training_cap_of_a_split_pool_names_one_slots_buffer() -> None:
    log = """
    srv    load_model: the slot context (524288) exceeds the training context of the model (262144) - capping
    srv    load_model: initializing, n_slots = 2, n_ctx_slot = 262144, kv_unified = 'false'
    """
    assert shape(log) == (2, 262144, 1048576, False)


def test_the_pool_sized_before_the_model_is_loaded_is_kept() -> None:
    log = """
    srv  llama_server: initializing ...
    srv  llama_server: --kv-unified-per-slot: sizing KV pool to n_parallel * kv_unified_per_slot = 4 * 1024 = 4096
    srv    load_model: loading model 'm.gguf'
    srv    load_model: initializing, n_slots = 4, n_ctx_slot = 1024, kv_unified = 'true'
    """
    assert shape(log) == (4, 1024, 4096, True)


OLD = """
srv    load_model: loading model 'm.gguf'
llama_context: n_seq_max     = 4
llama_context: n_ctx         = 4096
{seq}
llama_kv_cache{name}: size = 2.00 MiB (  {cells} cells,   2 layers,  {seqs} seqs), K (f16): 1.00 MiB, V (f16): 1.00 MiB
srv          init: initializing slots, n_slots = 4
slot         init: id  0 | task -1 | new slot n_ctx_slot = {slot}
"""


@pytest.mark.parametrize(
    ("seq", "name", "cells", "seqs", "slot", "shared"),
    [
        ("llama_context: n_ctx_per_seq = 1024", "_unified", 4096, "4", 1024, True),
        ("llama_context: kv_unified    = true", "", 4096, "4/1", 1024, True),
        ("llama_context: kv_unified    = false", "", 1024, "4/4", 1024, False),
        ("llama_context: n_ctx_seq     = 4096", "", 4096, "4/1", 4096, True),
    ],
    ids=["b5541", "b6666 unified", "b6666 split", "b6925 and later"],
)
def test_the_librarys_lines_tell_the_pool(seq: str, name: str, cells: int, seqs: str, slot: int, shared: bool) -> None:
    assert shape(OLD.format(seq=seq, name=name, cells=cells, seqs=seqs, slot=slot)) == (4, slot, 4096, shared)


def test_kv_bytes_per_token_are_the_size_lines_bytes_by_its_cells() -> None:
    log = read(
        "llama_kv_cache: size = 40960.00 MiB (262144 cells,  40 layers,  4/1 seqs), "
        "K (f16): 20480.00 MiB, V (f16): 20480.00 MiB"
    )
    assert log.bytes_per_token() == 160 * 1024
    assert log.cache_bytes == 40960 * 2**20


def test_a_sliding_window_models_second_cache_is_not_the_pool_but_counts_in_bytes() -> None:
    log = read(
        """
        srv    load_model: loading model 'gemma.gguf'
        llama_context: n_ctx         = 32768
        llama_kv_cache_iswa: creating non-SWA KV cache, size = 32768 cells
        llama_kv_cache: size = 512.00 MiB ( 32768 cells, 8 layers, 4/1 seqs), K (f16): 256.00 MiB, V (f16): 256.00 MiB
        llama_kv_cache_iswa: creating     SWA KV cache, size = 4608 cells
        llama_kv_cache: size = 360.00 MiB ( 4608 cells, 40 layers, 4/1 seqs), K (f16): 180.00 MiB, V (f16): 180.00 MiB
        """
    )
    assert log.geometry().capacity == 32768
    assert log.cache_bytes == (512 + 360) * 2**20
    assert log.bytes_per_token() == 512 * 2**20 / 32768


def test_the_sliding_window_cache_is_not_the_pool_when_it_comes_first() -> None:
    log = read(
        """
        llama_kv_cache_iswa: creating     SWA KV cache, size = 4608 cells
        llama_kv_cache: size = 360.00 MiB ( 4608 cells, 40 layers, 4/1 seqs), K (f16): 180.00 MiB, V (f16): 180.00 MiB
        llama_kv_cache_iswa: creating non-SWA KV cache, size = 32768 cells
        llama_kv_cache: size = 512.00 MiB ( 32768 cells, 8 layers, 4/1 seqs), K (f16): 256.00 MiB, V (f16): 256.00 MiB
        """
    )
    assert log.geometry().capacity == 32768


def test_a_recurrent_states_cells_are_not_the_pool() -> None:
    log = read(
        """
        srv    load_model: loading model 'hybrid.gguf'
        llama_context: n_ctx         = 8192
        llama_memory_recurrent: size = 62.81 MiB ( 4 cells, 40 layers, 4 seqs), R (f32): 2.81 MiB, S (f32): 60.00 MiB
        """
    )
    assert log.geometry().capacity == 8192


def test_a_draft_models_context_and_cache_are_not_the_pool() -> None:
    log = read(
        """
        srv    load_model: loading model 'big.gguf'
        llama_context: n_ctx         = 65536
        llama_context: kv_unified    = true
        llama_kv_cache: size = 1024.00 MiB ( 65536 cells, 32 layers, 4/1 seqs), K (f16): 512.00 MiB, V (f16): 512.00 MiB
        srv    load_model: loading draft model 'small.gguf'
        llama_context: n_ctx         = 16384
        llama_context: kv_unified    = false
        llama_kv_cache: size =  100.00 MiB ( 16384 cells,  12 layers,  1/1 seqs), K (f16): 50.00 MiB, V (f16): 50.00 MiB
        srv          init: initializing slots, n_slots = 4
        slot   load_model: id  0 | task -1 | new slot, n_ctx = 65536
        """
    )
    geometry = log.geometry()
    assert (geometry.capacity, geometry.shared) == (65536, True)
    assert log.cache_bytes == 1024 * 2**20


def test_a_reload_replaces_what_was_known() -> None:
    log = """
    srv    load_model: loading model 'm.gguf'
    srv    load_model: initializing, n_slots = 4, n_ctx_slot = 262144, kv_unified = 'true'
    srv    load_model: loading model 'm.gguf'
    srv    load_model: initializing, n_slots = 2, n_ctx_slot = 65536, kv_unified = 'false'
    """
    assert shape(log) == (2, 65536, 131072, False)


def test_builds_that_hide_the_librarys_lines_leave_the_pool_to_other_sources() -> None:
    log = read("srv init: initializing slots, n_slots = 4\nslot init: id  0 | task -1 | new slot, n_ctx = 65536")
    assert log.geometry() == Geometry(4, 65536, None, None, "journal")
    assert merge(log.geometry(), Geometry(4, None, 262144, False, "cmdline")) == Geometry(
        4, 65536, 262144, False, "cmdline"
    )


def test_the_configuration_wins_field_by_field() -> None:
    configured = Geometry(capacity=1000, source="config")
    observed = Geometry(4, 2048, 8192, True, "journal")
    assert merge(configured, observed) == Geometry(4, 2048, 1000, True, "config")


def test_one_slot_is_the_pool_wherever_its_number_comes_from() -> None:
    merged = merge(Geometry(slots=1, source="api"), Geometry(slot_context=4096, source="cmdline"))
    assert (merged.capacity, merged.shared) == (4096, False)


@pytest.mark.parametrize(
    ("geometry", "promised", "ratio", "guaranteed"),
    [
        (Geometry(4, 16384, 16384, True), 65536, 4.0, 4096),
        (Geometry(3, 12288, 36864, False), 36864, 1.0, 12288),
        (Geometry(4, 262144, 1048576, True), 1048576, 1.0, 262144),
        (Geometry(4, 1024, 2048, True), 4096, 2.0, 512),
        (Geometry(4, 1024, None, None), 4096, None, None),
    ],
)
def test_promised_and_guaranteed_follow_from_the_shape(
    geometry: Geometry, promised: int, ratio: float | None, guaranteed: int | None
) -> None:
    assert (geometry.promised, geometry.overcommit_ratio, geometry.guaranteed) == (promised, ratio, guaranteed)
