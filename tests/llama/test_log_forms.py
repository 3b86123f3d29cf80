"""The same line in all the wrappings that logs come in: prefixes, colours, pasted text, JSON lines."""

from __future__ import annotations

import pytest

from kvexporter.llama.events import (
    BatchRetried,
    BatchUnplaced,
    DecodeFailed,
    Event,
    LogLine,
    ModelLoading,
    PoolInitialized,
    PoolSized,
    Released,
    SlotPurged,
    TaskLaunched,
    Timing,
    TimingHeader,
)
from kvexporter.llama.log import LINE_LIMIT, parse_line

RELEASE = b"slot      release: id  1 | task 2 | stop processing: n_tokens = 219, truncated = 0"
RELEASED = LogLine(Released(1, 2, 219, truncated=False))

PREFIXES = [
    b"",
    b"I ",
    b"0.00.382.861 I ",
    b"868.50.896.345 I ",
    b"0.00.382.861 ",
    b"May 22 01:30:52 host llama-server[37450]: ",
    b"May  2 01:30:52 host start_llama_server.sh[37450]: 63.17.950.362 I ",
    b"May 22 01:30:52.123456 host llama-server[37450]: ",
    b"2026-05-22T01:30:52+0200 host llama-server[1]: ",
    b"2026-05-22T01:30:52.123456+02:00 host llama-server[1]: ",
    b"Fri 2026-05-22 01:30:52 CEST host llama-server.service[12]: ",
    b"1716334252.123456 host llama-server[1]: ",
    b"[12345.678901] host llama-server[1]: ",
    b"2026-05-22T01:30:52.123456789Z ",
    b"2026-05-22T01:30:52.123456789Z stderr F ",
    b"2026-05-22 01:30:52 ",
    b"llama-cpp-1  | ",
    b"llama-cpp       | 0.19.834.943 I ",
    b"    ",
    b"\t",
]


@pytest.mark.parametrize("prefix", PREFIXES, ids=range(len(PREFIXES)))
def test_a_line_is_read_behind_any_prefix(prefix: bytes) -> None:
    assert parse_line(prefix + RELEASE) == RELEASED


@pytest.mark.parametrize(
    ("prefix", "port"),
    [
        (b"[37723] ", 37723),
        (b"[ 8081] ", 8081),
        (b"[37723] 0.00.382.861 I ", 37723),
        (b"llama-cpp       | [51429] 0.19.834.943 I ", 51429),
        (b"May 22 01:30:52 host llama-server[37450]: [51429] ", 51429),
        (b"\x1b[34m[51429]\x1b[0m ", 51429),
    ],
)
def test_the_port_of_a_routers_child_is_told(prefix: bytes, port: int) -> None:
    assert parse_line(prefix + RELEASE) == LogLine(RELEASED.event, child_port=port)


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            b"[38311] prompt eval time =  131.50 ms /    53 tokens (    2.48 ms per token,   403.33 tokens per second)",
            Timing("prompt", None, None, 0.1315, 53, 403.33),
        ),
        (b"[37723] 52.17.408.129 E init_batch: failed to prepare attention ubatches", BatchUnplaced(None)),
        (b"[37723] slot print_timing: id  0 | task 4 | ", TimingHeader(0, 4)),
    ],
)
def test_a_routers_child_may_write_lines_without_a_tag(line: bytes, event: Event) -> None:
    parsed = parse_line(line)
    assert parsed is not None
    assert parsed.event == event
    assert parsed.child_port is not None


@pytest.mark.parametrize(
    "line",
    [
        b"\x1b[34m0.00.382.861\x1b[0m \x1b[32mI \x1b[0m" + RELEASE,
        b"\x1b[34m0.00.382.861\x1b[0m \x1b[35mW " + RELEASE + b"\x1b[0m",
        RELEASE + b"\x1b[0m",
        RELEASE + b"\x1b[K",
        RELEASE.replace(b"stop", b"\x1b[1;31mstop\x1b[0m"),
        RELEASE + b"\r",
        RELEASE + b"\r\n",
        RELEASE + b"  ",
        b"\0\0\0\0" + RELEASE,
        RELEASE + b"\0",
    ],
)
def test_colours_line_ends_and_nuls_do_not_matter(line: bytes) -> None:
    assert parse_line(line) == RELEASED


def test_a_tag_that_is_not_utf_8_is_free_text_like_any_other() -> None:
    assert parse_line(RELEASE.replace(b"release", b"rel\xff\xc3se")) == RELEASED


def test_a_model_name_that_is_not_utf_8_is_read_with_replacements() -> None:
    parsed = parse_line(b"srv    load_model: loading model 'mod\xff\xfel.gguf'")
    assert parsed == LogLine(ModelLoading("mod\ufffd\ufffdl.gguf"))


@pytest.mark.parametrize("tag", [b"release", b"operator()", b"~server_slo", b"x", b"release_it::", b"a-b.c"])
def test_a_slots_tag_is_free_text(tag: bytes) -> None:
    assert parse_line(RELEASE.replace(b"release", tag)) == RELEASED


@pytest.mark.parametrize(
    "tag", [b"srv  try_clear_id: ", b"srv    operator(): ", b"cmn  whatever: ", b"some_func: ", b"some_func : "]
)
def test_a_servers_tag_is_free_text(tag: bytes) -> None:
    assert parse_line(tag + b"purging slot 2 with 9120 tokens") == LogLine(SlotPurged(2, 9120))


def test_further_fields_at_the_end_are_accepted() -> None:
    assert parse_line(RELEASE + b", n_shared = 12") == RELEASED
    line = b"0.1.1 slot x: id 0 | task 1 | processing task, is_child = 0, n_parent = 3"
    assert parse_line(line.removeprefix(b"0.1.1 ")) == LogLine(TaskLaunched(0, 1))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            b"load_model: initializing, n_slots = 4, n_ctx_slot = 262144, kv_unified = 'true'",
            LogLine(PoolInitialized(4, 262144, unified=True)),
        ),
        (
            b"decode: failed to find free space in the KV cache, retrying with smaller batch size, "
            b"off = 1329, n_batch = 1024",
            LogLine(BatchRetried(1329, 1024)),
        ),
        (b"decode: failed to find a memory slot for batch of size 719", LogLine(BatchUnplaced(719))),
        (b"slot release: id 0 | stop processing: n_tokens = 159069", LogLine(Released(0, None, 159069, False))),
        (b"slot release: id 1 | stop processing: n_tokens = 23428", LogLine(Released(1, None, 23428, False))),
        (b"slot release: id 2 | stop processing: n_tokens = 77417", LogLine(Released(2, None, 77417, False))),
        (b"slot release: id 3 | stop processing: n_tokens = 2949", LogLine(Released(3, None, 2949, False))),
        (
            b"update_slots: decode() failed: Context size has been exceeded.",
            LogLine(DecodeFailed(), mentions_context_error=True),
        ),
        (
            b"--kv-unified-per-slot: sizing KV pool to n_parallel * kv_unified_per_slot = 4 * 1024 = 4096",
            LogLine(PoolSized(4, 1024, 4096)),
        ),
    ],
)
def test_lines_shortened_by_hand_are_read(line: bytes, expected: LogLine) -> None:
    assert parse_line(line) == expected


PURGE = LogLine(SlotPurged(2, 9120))


@pytest.mark.parametrize(
    "line",
    [
        rb'{"type":"log","level":"warn","text":"srv  try_clear_id: purging slot 2 with 9120 tokens\n"}',
        rb'{"level":"W","message":"0.10.000.000 W srv  try_clear_id: purging slot 2 with 9120 tokens"}',
        rb'{"timestamp":12,"msg":"srv  try_clear_id: purging slot 2 with 9120 tokens"}',
        rb'{"type":"log","content":"srv  try_clear_id: purging slot 2 with 9120 tokens"}',
        rb' {"type":"other","level":"none","text":"srv  try_clear_id: purging slot 2 with 9120 tokens","x":[{}]}',
        b'{"type":"log","text":"srv  try_cl\xffar_id: purging slot 2 with 9120 tokens"}',
        rb'May 22 01:30:52 host x[1]: {"type":"log","text":"srv  try_clear_id: purging slot 2 with 9120 tokens"}',
    ],
)
def test_a_line_wrapped_in_json_is_read(line: bytes) -> None:
    assert parse_line(line) == PURGE


def test_a_routers_child_may_write_json() -> None:
    line = rb'[37723] {"type":"log","text":"srv  try_clear_id: purging slot 2 with 9120 tokens"}'
    assert parse_line(line) == LogLine(PURGE.event, child_port=37723)


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"{}",
        b"{]",
        b'{"type":"log"}',
        b'{"type":"log","text":7}',
        b'{"type":"log","text":null,"msg":[]}',
        b'{"type":"log","text":"unfinished',
        b'{"a":' * 1500,
        b'{"type":"log","text":"\\ud800"}',
    ],
    ids=range(9),
)
def test_json_that_is_no_record_says_nothing(line: bytes) -> None:
    assert parse_line(line) is None


def test_a_line_longer_than_any_known_one_is_not_read() -> None:
    line = b"srv  log_server_r: request: GET /" + b"x" * LINE_LIMIT + b" 127.0.0.1 404"
    assert parse_line(line) is None
