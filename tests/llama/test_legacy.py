"""The JSON and key=value logs of 2024, which forks still write in 2026."""

from __future__ import annotations

import json

import pytest

from kvexporter.llama.events import (
    AllSlotsIdle,
    BatchRetried,
    ContextExceeded,
    ContextShifted,
    Event,
    HttpRequest,
    Listening,
    LogLine,
    ModelLoaded,
    ModelLoading,
    ProcessStarting,
    PromptReused,
    PromptStarted,
    Released,
    RequestFailed,
    SlotContext,
    SlotsInitializing,
    TaskLaunched,
    Timing,
)
from kvexporter.llama.log import parse_line

RETRY = (
    "failed to find free space in the KV cache, retrying with smaller batch size - "
    "try increasing it via the context size or enable defragmentation"
)
FULL = "failed to decode the batch: KV cache is full - try increasing it via the context size"
TOO_BIG = "Input prompt is too big compared to KV size. Please try increasing KV size."
PROMPT_TIME = "prompt eval time     =    1048.75 ms /   221 tokens (    4.75 ms per token,   210.70 tokens per second)"
ANSWER_TIME = "generation eval time =     828.50 ms /    23 runs   (   36.00 ms per token,    27.78 tokens per second)"

RECORDS: list[tuple[str, dict[str, object], Event | None]] = [
    ("build info", {"build": 2036, "commit": "d3bac7d5"}, ProcessStarting("b2036")),
    ("loading model", {"n_threads_http": "15"}, ModelLoading()),
    ("initializing slots", {"n_slots": 4}, SlotsInitializing(4)),
    ("new slot", {"id_slot": 3, "n_ctx_slot": 32768}, SlotContext(3, 32768)),
    ("new slot", {"slot_id": 3, "n_ctx_slot": 32768}, SlotContext(3, 32768)),
    ("model loaded", {}, ModelLoaded()),
    (
        "HTTP server listening",
        {"n_threads_http": "15", "port": "8080", "hostname": "0.0.0.0"},
        Listening("0.0.0.0", 8080),
    ),
    ("HTTP server is listening", {"port": "8080", "hostname": "::1"}, Listening("::1", 8080)),
    ("all slots are idle", {}, AllSlotsIdle()),
    ("slot is processing task", {"id_slot": 0, "id_task": 7}, TaskLaunched(0, 7)),
    ("slot is processing task", {"slot_id": 0, "task_id": 7}, TaskLaunched(0, 7)),
    (
        "prompt tokenized",
        {"id_slot": 0, "id_task": 7, "n_ctx": 4096, "n_keep": 0, "n_prompt_tokens": 500},
        PromptStarted(0, 7, 4096, 500),
    ),
    ("kv cache rm [p0, end)", {"id_slot": 0, "id_task": 7, "p0": 24}, PromptReused(0, 7, 24)),
    (
        "slot context shift",
        {"id_slot": 0, "id_task": 7, "n_keep": 1, "n_left": 2046, "n_discard": 1023},
        ContextShifted(0, 7, 1023),
    ),
    (
        "slot released",
        {
            "id_slot": 0,
            "id_task": 7,
            "n_ctx": 4096,
            "n_past": 571,
            "n_system_tokens": 0,
            "n_cache_tokens": 0,
            "truncated": False,
        },
        Released(0, 7, 571, truncated=False),
    ),
    (
        "slot released",
        {"slot_id": 1, "task_id": -1, "n_past": 9, "truncated": True},
        Released(1, None, 9, truncated=True),
    ),
    (
        "request",
        {"remote_addr": "127.0.0.1", "remote_port": 34342, "status": 200, "method": "GET", "path": "/health"},
        HttpRequest("GET", "/health", 200),
    ),
    (RETRY, {"i": 512, "n_batch": 256, "ret": 1}, BatchRetried(512, 256)),
    (FULL, {"i": 3, "n_batch": 1, "ret": 1}, ContextExceeded(3, cleared=False)),
    (FULL, {"i": 3, "n_batch": -3, "ret": -3}, None),
    ("task error", {"id_multi": -1, "id_task": 7, "error": TOO_BIG}, RequestFailed(7, "pool")),
    (
        "task error",
        {"id_task": -1, "error": "the request exceeds the available context size. try increasing the context size"},
        RequestFailed(None, "slot"),
    ),
    ("task error", {"id_task": 7, "error": 'quoted "text" of a client'}, RequestFailed(7, "other")),
    (
        PROMPT_TIME,
        {
            "id_slot": 0,
            "id_task": 1,
            "t_prompt_processing": 1048.75,
            "n_prompt_tokens_processed": 221,
            "n_tokens_second": 210.5,
        },
        Timing("prompt", 0, 1, 1.04875, 221, 210.5),
    ),
    (
        ANSWER_TIME,
        {"id_slot": 0, "id_task": 1, "t_token_generation": 828.5, "n_decoded": 23, "n_tokens_second": 27.75},
        Timing("generation", 0, 1, 0.8285, 23, 27.75),
    ),
    ("          total time =    1876.95 ms", {"id_slot": 0, "id_task": 1, "t_total": 1876.95}, None),
    ("slot data", {"id_task": 0, "n_idle_slots": 1, "n_processing_slots": 0}, None),
    ("system info", {"n_threads": 12, "total_threads": 24, "system_info": "AVX = 1 | AVX2 = 1 | "}, None),
    ("input truncated", {"id_slot": 0, "id_task": 7, "n_ctx": 4096}, None),
    # Fields that are missing, or are not what they should be.
    ("slot released", {"id_slot": 0}, None),
    ("slot released", {"n_past": 5}, None),
    ("slot released", {"id_slot": True, "n_past": 5}, None),
    ("slot released", {"id_slot": "x", "n_past": 5}, None),
    ("initializing slots", {"n_slots": 2.5}, None),
    ("initializing slots", {"n_slots": -1}, None),
    ("request", {"status": 200, "method": "G T", "path": "/"}, None),
    ("request", {"status": "ok", "method": "GET", "path": "/"}, None),
    ("HTTP server listening", {"port": "0", "hostname": "x"}, None),
    (RETRY, {"i": 512}, None),
]
IDS = [f"{number}-{message[:20]}" for number, (message, _, _) in enumerate(RECORDS)]


def as_key_value(message: str, fields: dict[str, object]) -> str:
    """The line as the text format of 2024 has it: JSON's rendering of every value."""
    pairs = "".join(f" {name}={json.dumps(value)}" for name, value in fields.items())
    return f'INFO [{"update_slots":>24}] {message} | tid="140137934626816" timestamp=1713130052{pairs}'


def check(line: str, event: Event | None) -> None:
    parsed = parse_line(line.encode())
    assert parsed == (None if event is None else LogLine(event))


@pytest.mark.parametrize(("message", "fields", "event"), RECORDS, ids=IDS)
def test_the_key_value_line_gives_the_event(message: str, fields: dict[str, object], event: Event | None) -> None:
    check(as_key_value(message, fields), event)


@pytest.mark.parametrize(("message", "fields", "event"), RECORDS, ids=IDS)
def test_the_json_line_of_builds_from_b2259_gives_the_event(
    message: str, fields: dict[str, object], event: Event | None
) -> None:
    head = {"tid": "140", "timestamp": 1710000000, "level": "INFO", "function": "update_slots", "line": 1893}
    check(json.dumps(head | {"msg": message} | fields), event)


@pytest.mark.parametrize(("message", "fields", "event"), RECORDS, ids=IDS)
def test_the_json_line_of_builds_before_b2259_gives_the_event(
    message: str, fields: dict[str, object], event: Event | None
) -> None:
    head = {"timestamp": 1706462782, "level": "INFO", "function": "log_server_request", "line": 2811}
    check(json.dumps(head | {"message": message} | fields), event)


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            '{"timestamp":1706462782,"level":"INFO","function":"log_server_request","line":2811,"message":"request",'
            '"remote_addr":"127.0.0.1","remote_port":34342,"status":200,"method":"GET","path":"/health","params":{}}',
            HttpRequest("GET", "/health", 200),
        ),
        (
            'INFO [            update_slots] kv cache rm [p0, end) | tid="140" timestamp=1710000000 id_slot=0 '
            "id_task=7 p0=24",
            PromptReused(0, 7, 24),
        ),
        (
            " ERR [    process_batch_tokens] failed to decode the batch: KV cache is full - try increasing it via the "
            'context size | tid="135692713889792" timestamp=1775920954 i=0 n_batch=1 ret=1',
            ContextExceeded(0, cleared=False),
        ),
        (
            '      INFO [              slots_idle] all slots are idle | tid="0x1e89e4c00" timestamp=1720645907',
            AllSlotsIdle(),
        ),
        (
            'INFO [                    init] initializing slots | tid="22502421118976" timestamp=1788493431 n_slots=1 '
            "kv_unified",
            SlotsInitializing(1),
        ),
        (
            'INFO [      log_server_request] request | tid="140" timestamp=1 remote_addr="127.0.0.1" remote_port=9 '
            'status=500 method="POST" path="/v1/chat/completions" params={}',
            HttpRequest("POST", "/v1/chat/completions", 500),
        ),
        ('WARN [              load_model] %s | ="ctx_shift is not supported by multimodal"', None),
        ("INFO [] | ", None),
        ("INFO [main] model loaded", None),
    ],
    ids=range(9),
)
def test_lines_seen_in_the_field_are_read(line: str, event: Event | None) -> None:
    check(line, event)


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**70), 10**300])
def test_a_number_beyond_belief_is_none(number: int) -> None:
    line = b'{"level":"ERR","msg":"failed to decode the batch","i":%d,"n_batch":1,"ret":1}' % number
    assert parse_line(line) == LogLine(ContextExceeded(None, cleared=False))


def test_the_context_error_is_told_in_structured_lines_too() -> None:
    line = b'ERR [ send_error] task error | tid="1" timestamp=1 id_task=7 error="Context size has been exceeded."'
    assert parse_line(line) == LogLine(RequestFailed(7, "pool"), mentions_context_error=True)
