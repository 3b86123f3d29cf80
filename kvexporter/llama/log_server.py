"""Lines of the server as a whole (`srv  …: …`, and the library's `decode: …`): room in the cache, errors, requests."""

from __future__ import annotations

import re

from kvexporter.llama.events import (
    AllSlotsIdle,
    BatchRetried,
    BatchUnplaced,
    ContextExceeded,
    DecodeFailed,
    Event,
    HttpRequest,
    RequestFailed,
    SlotPurged,
    TaskCancelled,
)
from kvexporter.llama.log_grammar import Match, rule, task_number, text

PATH_LIMIT = 100
"""Characters of a request's path that are kept."""

_POOL_ERROR = re.compile(rb"Context size has been exceeded|Input prompt is too big compared to KV size")
# Every wording of "this one request is too large", with its size and its slot's where the build prints them.
_SLOT_ERROR = re.compile(
    rb"(?:the )?request(?: \((\d{1,12}) tokens\))? exceeds the available context size(?: \((\d{1,12}) tokens\))?"
    rb"|input(?: \((\d{1,12}) tokens\))? is larger than the max context size(?: \((\d{1,12}) tokens\))?"
    rb"|()context shift is disabled()"
)
# "input is too large to process" is not among them: that is the batch size's limit (-ub), not the context's.


def request_failed(task: int | None, error: bytes) -> RequestFailed:
    """The failure of one request, told by the start of its error text, which is not kept: it may quote the request."""
    if _POOL_ERROR.match(error):
        return RequestFailed(task, "pool")
    m = _SLOT_ERROR.match(error)
    if m is None:
        return RequestFailed(task, "other")
    tokens, context = m[1] or m[3], m[2] or m[4]
    return RequestFailed(task, "slot", int(tokens) if tokens else None, int(context) if context else None)


def http_request(method: bytes, path: bytes, code: bytes) -> HttpRequest:
    """A request, without what a client wrote behind a question mark."""
    return HttpRequest(method.decode("ascii"), text(path.partition(b"?")[0], PATH_LIMIT), int(code))


def _http_request(m: Match, i: int) -> Event:
    method, path, code = m.group(i + 1, i + 2, i + 3)
    return http_request(method, path[: 4 * PATH_LIMIT], code)


def _batch_unplaced(m: Match, i: int) -> Event:
    return BatchUnplaced(int(m[i + 1]))


def _batch_retried(m: Match, i: int) -> Event:
    offset, batch = m.group(i + 1, i + 2)
    return BatchRetried(None if offset is None else int(offset), int(batch))


def _context_exceeded(m: Match, i: int) -> Event:
    name, offset = m.group(i + 1, i + 2)
    return ContextExceeded(None if offset is None else int(offset), name == b"off")


def _request_failed(m: Match, i: int) -> Event:
    return request_failed(task_number(m[i + 1]), m.string[m.end() : m.end() + 200])


def _cancelled(m: Match, i: int) -> Event:
    return TaskCancelled(task_number(m[i + 1]))


def _purged(m: Match, i: int) -> Event:
    slot, tokens = m.group(i + 1, i + 2)
    return SlotPurged(int(slot), int(tokens))


_IDLE = AllSlotsIdle()
_ECHO = DecodeFailed()

_REQUEST = rb"request: ([A-Z]{3,16}) ([^\n]*) \S+ (\d{3})<end>"

REQUEST_RULES = (rule(_REQUEST, _http_request), rule(rb"done " + _REQUEST, _http_request))
"""With the server's tag, or without one (up to b4672)."""

# They are tried in this order: the frequent ones first.
SERVER_RULES = (
    rule(rb"all slots are idle<fields>", lambda m, i: _IDLE),
    *REQUEST_RULES,
    rule(rb"failed to find a memory slot for batch of size <count><fields>", _batch_unplaced),
    rule(rb"failed to find KV cache slot for ubatch of size <count><fields>", _batch_unplaced),
    rule(
        rb"failed to find free space in the KV cache, retrying with smaller (?:batch size)?[^,]{0,100}"
        rb"(?:, (?:i|off) = <number>)?(?:, )?n_batch = <count><fields>",
        _batch_retried,
    ),
    # Only ret = 1 means that the cache is full. Another n_batch than 1 is not the end of a cascade.
    rule(
        rb"Context size has been exceeded\.?,? (i|off) = <number>, n_batch = 1, ret = 1<fields>",
        _context_exceeded,
    ),
    rule(
        rb"failed to decode the batch(?:: KV cache is full[^,]{0,100})?(?:, (i) = <number>)?"
        rb", n_batch = 1, ret = 1<fields>",
        _context_exceeded,
    ),
    rule(rb"task id = <number>, error: ", _request_failed),
    rule(rb"cancel task, id_task = <number><fields>", _cancelled),
    rule(rb"purging slot <slots> with <count> tokens<fields>", _purged),
    rule(rb"decode\(\) failed: Context size has been exceeded", lambda m, i: _ECHO),
    rule(rb"failed to prepare attention ubatches<fields>", lambda m, i: BatchUnplaced(None)),
    rule(rb"n_tokens = <count> > size = <-><fields>", _batch_unplaced),
)
