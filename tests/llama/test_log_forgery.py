"""Text of a request that gets into a log must not be taken for the server's own words."""

from __future__ import annotations

import pytest

from kvexporter.llama.events import HttpRequest, LogLine, ModelLoading, RequestFailed
from kvexporter.llama.log import parse_line

FORGED = [
    b"slot release: id 1 | stop processing: n_tokens = 5",
    b"slot      release: id  1 | task 7 | stop processing: n_tokens = 5, truncated = 0",
    b"0.01.228.950 E srv        decode: Context size has been exceeded. off = 0, n_batch = 1, ret = 1",
    b"srv    send_error: task id = 10, error: Context size has been exceeded.",
    b"decode: failed to find a memory slot for batch of size 4",
    b"srv  try_clear_id: purging slot 2 with 9120 tokens",
    b"stop processing: n_tokens = 5, truncated = 0",
    b"load_model: initializing, n_slots = 4, n_ctx_slot = 262144, kv_unified = 'true'",
    b"prompt eval time =     131.50 ms /    53 tokens (    2.48 ms per token,   403.33 tokens per second)",
]

AROUND = [
    b"slot update_slots: id  0 | task 96 | old: ... %b",
    b"slot update_slots: id  0 | task 96 | new: ... %b",
    b"slot process_toke: id  0 | task 96 | n_decoded = 1, n_remaining = 9, next token:   278 '%b'",
    b"srv  params_from_: Grammar: %b",
    b"srv  params_from_: Chat format: peg: %b",
    b"srv  server_strea: conv_id=%b (empty=0)",
    b'srv    operator(): request: {"prompt":"%b"}',
    b"main: chat template, chat_template: %b",
    b"0.10.000.000 D res         send: %b",
    b"- %b",
    b"> %b",
    b"'%b'",
    b'{"prompt":"%b","n_predict":4}',
    b'{"role":"user","content":"%b"}',
    b'{"type":"text","text":"%b"}',
]


@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
@pytest.mark.parametrize("around", AROUND, ids=range(len(AROUND)))
def test_text_inside_of_a_line_is_no_event(around: bytes, forged: bytes) -> None:
    parsed = parse_line(around % forged)
    assert parsed is None or parsed == LogLine(None, mentions_context_error=True)


@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
def test_text_in_an_error_is_no_event_of_its_own(forged: bytes) -> None:
    parsed = parse_line(b"srv    send_error: task id = 3, error: Failed to parse input: " + forged)
    assert parsed is not None
    assert parsed.event == RequestFailed(3, "other")


@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
def test_text_in_a_path_is_only_a_path(forged: bytes) -> None:
    parsed = parse_line(b"srv  log_server_r: request: GET /" + forged + b" 127.0.0.1 404")
    assert parsed is not None
    assert parsed.event == HttpRequest("GET", "/" + forged.decode()[:99], 404)


@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
def test_text_in_a_files_name_is_only_a_name(forged: bytes) -> None:
    parsed = parse_line(b"srv    load_model: loading model '" + forged + b"'")
    assert parsed is not None
    assert parsed.event == ModelLoading(forged.decode())


def test_no_event_holds_the_text_of_an_error_or_of_a_prompt() -> None:
    for line in (
        b"slot update_slots: id  0 | task 96 | old: ... SECRET",
        b"srv    send_error: task id = 3, error: Failed to parse input: SECRET",
        b'ERR [ send_error] task error | tid="1" timestamp=1 id_task=3 error="Failed to parse input: SECRET"',
        b'{"level":"ERR","msg":"task error","id_task":3,"error":"SECRET","prompt":"SECRET"}',
    ):
        assert "SECRET" not in repr(parse_line(line))


def test_a_field_behind_unquoted_text_does_not_replace_one_before_it() -> None:
    parsed = parse_line(
        b'INFO [ log_server_request] request | tid="1" timestamp=1 remote_addr="127.0.0.1" remote_port=1 status=200 '
        b'method="GET" path="/x \\" status=500 method=\\"PUT" params={"a":"b status=500 path=/y"}'
    )
    assert parsed == LogLine(HttpRequest("GET", '/x " status=500 method="PUT', 200))
