"""Structured log lines: the JSON and key=value logs of 2024 (and of forks that still write them), and `--log-jsonl`.

`{"level":"INFO","function":"update_slots","msg":"slot context shift","id_slot":0,"id_task":7,"n_discard":1023,…}`
` INFO [            update_slots] kv cache rm [p0, end) | tid="140" timestamp=1710000000 id_slot=0 id_task=7 p0=24`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from kvexporter.llama.events import (
    AllSlotsIdle,
    BatchRetried,
    ContextExceeded,
    ContextShifted,
    Event,
    HttpRequest,
    Listening,
    ModelLoaded,
    ModelLoading,
    ProcessStarting,
    PromptReused,
    PromptStarted,
    Released,
    SlotContext,
    SlotsInitializing,
    TaskLaunched,
    Timing,
    TimingKind,
)
from kvexporter.llama.json_fields import MOST
from kvexporter.llama.log_server import PATH_LIMIT, http_request, request_failed
from kvexporter.llama.log_startup import build_name, listening

Fields = Mapping[str, object]
"""The fields of a line; numbers may be given as text."""

_FIELD_LIMIT = 64

_RECORD = re.compile(rb"[A-Z]{3,5} \[[^\]]{0,64}\] ([^|]{1,400}?) *\| *")
_FIELD = re.compile(rb"(\w{1,64})=(\"(?:[^\"\\]|\\.)*+\"|[^\s\"]\S*)\s*")
_WORD = re.compile(r"[A-Z]{3,16}")

_json = msgspec.json.Decoder(dict[str, object])
_json_text = msgspec.json.Decoder(str)


def read(line: bytes) -> tuple[str, Fields] | None:
    """The message and the fields of a line that starts with `{` or `LEVEL [`; None if it is no record of a log."""
    return _read_json(line) if line.startswith(b"{") else _read_key_value(line)


def event(message: str, fields: Fields) -> Event | None:
    """The event of a structured line; None if it says nothing, or is a plain line in a structured wrapping."""
    build = _MESSAGES.get(message.partition(",")[0].partition("=")[0].partition(":")[0].strip())
    return None if build is None else build(fields)


def _read_json(line: bytes) -> tuple[str, Fields] | None:
    try:
        record = _json.decode(line)
    except (ValueError, RecursionError):
        try:
            record = _json.decode(line.decode("utf-8", errors="replace").encode())
        except (ValueError, RecursionError):
            return None
    # Other JSON gets into a log too: bodies of requests, whose text is anybody's.
    if not ("level" in record or "timestamp" in record or record.get("type") == "log"):
        return None
    for name in ("text", "message", "msg", "content"):
        message = record.get(name)
        if isinstance(message, str):
            return message.strip("\r\n"), record
    return None


def _read_key_value(line: bytes) -> tuple[str, Fields] | None:
    head = _RECORD.match(line)
    if head is None:
        return None
    fields: dict[str, object] = {}
    position = head.end()
    # Field by field without a gap, and the first of a name wins: what comes after a value that is not quoted, such as
    # `params={"a":"b id_slot=3"}`, may be a client's text.
    for _ in range(_FIELD_LIMIT):
        field = _FIELD.match(line, position)
        if field is None:
            break
        name, value = field[1].decode(), field[2]
        fields.setdefault(name, _unquoted(value) if value.startswith(b'"') else value.decode(errors="replace"))
        position = field.end()
    return head[1].decode(errors="replace"), fields


def _unquoted(value: bytes) -> str:
    try:
        return _json_text.decode(value)
    except ValueError:
        return value[1:-1].decode(errors="replace")


# ---- fields -------------------------------------------------------------------------------------------------------


def _integer(fields: Fields, *names: str) -> int | None:
    """The first of the named fields that is there, as a whole number."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and len(value) < 16 and re.fullmatch(r"-?\d+", value, re.ASCII):
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST:
            return value
    return None


def _count(fields: Fields, *names: str) -> int | None:
    number = _integer(fields, *names)
    return number if number is not None and 0 <= number <= MOST else None


def _slots(fields: Fields, *names: str) -> int | None:
    """A number of a slot or of slots."""
    number = _count(fields, *names)
    return number if number is not None and number < 10_000 else None


def _decimal(fields: Fields, name: str) -> float | None:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number <= MOST else None


def _slot(fields: Fields) -> int | None:
    return _slots(fields, "id_slot", "slot_id")


def _task(fields: Fields) -> int | None:
    return _count(fields, "id_task", "task_id")


# ---- messages -----------------------------------------------------------------------------------------------------


def _slots_initializing(fields: Fields) -> Event | None:
    slots = _slots(fields, "n_slots")
    return SlotsInitializing(slots) if slots else None


def _slot_context(fields: Fields) -> Event | None:
    slot, tokens = _slot(fields), _count(fields, "n_ctx_slot")
    return None if slot is None or tokens is None else SlotContext(slot, tokens)


def _starting(fields: Fields) -> Event | None:
    build = _count(fields, "build")
    return ProcessStarting(None if build is None else build_name(b"%d" % build))


def _listening(fields: Fields) -> Listening | None:
    host, port = fields.get("hostname"), _count(fields, "port")
    return None if port is None or not isinstance(host, str) else listening(host.encode(errors="replace"), b"%d" % port)


def _launched(fields: Fields) -> Event | None:
    slot = _slot(fields)
    return None if slot is None else TaskLaunched(slot, _task(fields))


def _prompt_started(fields: Fields) -> Event | None:
    slot, context = _slot(fields), _count(fields, "n_ctx")
    tokens = _count(fields, "n_prompt_tokens", "num_prompt_tokens")
    if slot is None or context is None or tokens is None:
        return None
    return PromptStarted(slot, _task(fields), context, tokens)


def _prompt_reused(fields: Fields) -> Event | None:
    slot, tokens = _slot(fields), _count(fields, "p0")
    return None if slot is None or tokens is None else PromptReused(slot, _task(fields), tokens)


def _released(fields: Fields) -> Event | None:
    slot, tokens = _slot(fields), _count(fields, "n_past")
    if slot is None or tokens is None:
        return None
    return Released(slot, _task(fields), tokens, fields.get("truncated") in (True, "true"))


def _shifted(fields: Fields) -> Event | None:
    slot, discarded = _slot(fields), _count(fields, "n_discard")
    return None if slot is None or discarded is None else ContextShifted(slot, _task(fields), discarded)


def _http_request(fields: Fields) -> HttpRequest | None:
    method, path, code = fields.get("method"), fields.get("path"), _count(fields, "status")
    if not isinstance(method, str) or not isinstance(path, str) or not _WORD.fullmatch(method):
        return None
    return (
        None
        if code is None or code > 999
        else http_request(method.encode(), path[:PATH_LIMIT].encode(errors="replace"), b"%d" % code)
    )


def _batch_retried(fields: Fields) -> Event | None:
    batch = _count(fields, "n_batch")
    return None if batch is None else BatchRetried(_integer(fields, "i"), batch)


def _context_exceeded(fields: Fields) -> Event | None:
    # Some of these builds print ret as n_batch too; only 1 means that the cache is full.
    if _integer(fields, "n_batch") != 1 or _integer(fields, "ret") != 1:
        return None
    return ContextExceeded(_integer(fields, "i"), cleared=False)


def _request_failed(fields: Fields) -> Event | None:
    error = fields.get("error")
    return request_failed(_task(fields), error[:200].encode(errors="replace") if isinstance(error, str) else b"")


def _timing(kind: TimingKind, time: str, *tokens: str) -> Callable[[Fields], Event | None]:
    def build(fields: Fields) -> Event | None:
        milliseconds, count = _decimal(fields, time), _count(fields, *tokens)
        if milliseconds is None or count is None:
            return None
        speed = _decimal(fields, "n_tokens_second")
        return Timing(kind, _slot(fields), _task(fields), milliseconds / 1000.0, count, speed)

    return build


# By the message's text up to its first comma, colon or equals sign. "total time" tells no tokens and is left out.
_MESSAGES: dict[str, Callable[[Fields], Event | None]] = {
    "initializing slots": _slots_initializing,
    "new slot": _slot_context,
    "build info": _starting,
    "loading model": lambda fields: ModelLoading(),
    "model loaded": lambda fields: ModelLoaded(),
    "HTTP server listening": _listening,
    "HTTP server is listening": _listening,
    "slot is processing task": _launched,
    "prompt tokenized": _prompt_started,
    "kv cache rm [p0": _prompt_reused,
    "slot released": _released,
    "slot context shift": _shifted,
    "all slots are idle": lambda fields: AllSlotsIdle(),
    "request": _http_request,
    "failed to find free space in the KV cache": _batch_retried,
    "failed to decode the batch": _context_exceeded,
    "Context size has been exceeded": _context_exceeded,
    "Context size has been exceeded.": _context_exceeded,
    "task error": _request_failed,
    "prompt eval time": _timing(
        "prompt", "t_prompt_processing", "n_prompt_tokens_processed", "num_prompt_tokens_processed"
    ),
    "generation eval time": _timing("generation", "t_token_generation", "n_decoded"),
}
