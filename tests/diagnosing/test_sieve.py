"""What the sieve drops changes nothing in the books."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvexporter.diagnosing.sieve import Sieve
from kvexporter.llama.access_log import Asked
from tests.support.diagnosing import EXPECTED, recorded, sifted, story_of, without_times


@pytest.mark.parametrize("name", EXPECTED)
def test_a_sifted_recording_comes_to_the_same(name: str) -> None:
    lines = recorded(name)
    assert without_times(sifted(lines)) == without_times(story_of(lines))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recording_in_parts_comes_to_the_same(name: str) -> None:
    lines = recorded(name)
    assert without_times(sifted(lines, anew=range(0, len(lines), 7))) == without_times(story_of(lines))


def slot(rest: str, task: int = 1) -> bytes:
    return f"slot       function: id  {task % 3} | task {task} | {rest}".encode()


RETRIED = (
    b"srv  decode: failed to find free space in the KV cache, retrying with smaller batch size, "
    b"off = %d, n_batch = %d, ret = 1"
)
LINES = [
    *(slot("processing task, is_child = 0", task) for task in (1, 2, 3)),
    *(slot("stop processing: n_tokens = 1000, truncated = 0", task) for task in (1, 2, 3)),
    slot("new prompt, n_ctx_slot = 4096, n_keep = 0, n_prompt_tokens = 900"),
    slot("kv cache rm [24, end)"),
    slot("prompt done, n_past = 900, n_tokens = 388"),
    slot("prompt processing progress, n_past = 512, n_tokens = 512, progress = 0.568889"),
    slot("n_decoded = 102, tg = 10.51 t/s"),
    slot("prompt eval time =      11.38 ms /   300 tokens (    0.04 ms per token, 26357.41 tokens per second)"),
    slot("slot context shift, n_keep = 1, n_left = 100, n_discard = 50"),
    b"srv  update_slots: all slots are idle",
    b"decode: failed to find a memory slot for batch of size 4",
    RETRIED % (0, 512),
    RETRIED % (4, 1),
    b"srv  decode: Context size has been exceeded. off = 0, n_batch = 1, ret = 1",
    b"srv    send_error: task id = 1, error: Context size has been exceeded.",
    b"srv    send_error: task id = 2, error: Invalid input batch.",
    b"srv    send_error: task id = 3, error: request (5000 tokens) exceeds the available context size (4096 tokens)",
    b"srv  update_slots: decode() failed: Context size has been exceeded.",
    b"srv  log_server_r: done request: POST /completion 127.0.0.1 200",
    b"srv          stop: cancel task, id_task = 2",
    b"srv  update_slots: purging slot 0 with 919 tokens",
    b"srv    load_model: loading model 'tiny.gguf'",
    b"srv    load_model: initializing, n_slots = 3, n_ctx_slot = 4096, kv_unified = 'true'",
    b"srv  llama_server: initializing ...",
    b"srv  llama_server: model loaded",
    b"srv  llama_server: listening on http://127.0.0.1:8080",
    b"srv  update_slots: entering sleeping state",
    b"srv  update_slots: exiting sleeping state",
    b"srv    operator(): operator(): cleaning up before exit...",
    b"[ 8081] srv  update_slots: all slots are idle",
    b"nothing at all",
]


def test_every_line_of_the_test_says_what_it_is_meant_to() -> None:
    silent = [line for line in LINES if Sieve(thorough=True)(line) is None]
    assert silent == [b"nothing at all"]


@given(st.lists(st.sampled_from(LINES), max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_whatever_comes_in_whatever_order_a_sieve_changes_nothing(lines: list[bytes], anew: list[int]) -> None:
    mine = [line for line in lines if not line.startswith(b"[")]  # a child's book is another one
    assert without_times(sifted(mine, anew=anew)) == without_times(story_of(mine))


def test_steps_of_a_request_are_dropped_after_it_was_launched() -> None:
    sieve = Sieve()
    assert sieve(LINES[0]) is not None
    assert [sieve(line) for line in LINES[7:12]] == [None] * 5


def test_a_childs_lines_are_sifted_by_themselves() -> None:
    sieve = Sieve()
    sieve(LINES[0])
    assert sieve(b"[ 8081] " + LINES[9]) is not None  # nothing is known of this child yet
    assert sieve(LINES[9]) is None


def test_who_asks_for_completions_is_told_and_polls_are_not() -> None:
    sieve = Sieve()
    line = b"srv  log_server_r: done request: %b 192.168.1.7 %d"
    assert sieve(line % (b"POST /v1/chat/completions", 200)) == Asked("192.168.1.7", failed=False)
    assert sieve(line % (b"POST /completion", 500)) == Asked("192.168.1.7", failed=True)
    assert sieve(line % (b"GET /slots", 200)) is None
    assert sieve(b"[ 8081] srv  log_server_r: done request: POST /completion ::1 200") == Asked("::1", False, 8081)


def test_a_request_of_which_the_sender_is_not_told_is_dropped() -> None:
    assert Sieve()(b"srv  log_server_r: done request: POST /completion (null) 200") is None


def test_a_thorough_sieve_drops_only_requests() -> None:
    sieve = Sieve(thorough=True)
    sieve(LINES[0])
    assert all(sieve(line) is not None for line in LINES[7:12])
