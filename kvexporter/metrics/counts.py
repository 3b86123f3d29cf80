"""Definitions: context errors and requests, counted from the log, and upstream's own counters."""

from __future__ import annotations

from kvexporter.metrics.definition import MetricSection, Points, counter, gauge, histogram, logged, one
from kvexporter.snapshot import CAUSES, ServerSnapshot

_NO_LOG = "where the server's log cannot be read, and while what it holds from before is still being read"
_LOG = "the server's log, from the first line that was read"
_UPSTREAM = "the server's own /metrics, read while it is busy; its option --metrics turns it on"
_UPSTREAM_ABSENT = "without it, and on builds without this counter"


def _incidents(server: ServerSnapshot) -> Points:
    return _by_cause(server, server.counters.incidents)


def _failed(server: ServerSnapshot) -> Points:
    return _by_cause(server, server.counters.requests_failed)


def _by_cause(server: ServerSnapshot, counts: dict[str, int]) -> Points:
    # Both causes exist from the start: increase() does not see a series' first value as an increase.
    return [((cause,), counts.get(cause, 0)) for cause in CAUSES] if server.has_log else ()


def _last_slots(server: ServerSnapshot) -> Points:
    if server.last_incident is None:
        return ()
    return [((str(slot.slot),), slot.tokens) for slot in server.last_incident.slots if slot.tokens is not None]


def _http(server: ServerSnapshot) -> Points:
    return server.counters.http_requests.items()


CONTEXT_ERRORS = MetricSection(
    "Context errors",
    "Requests that died for want of context, and what comes before that. All are counted from the log, and all are "
    "lower bounds once kvexporter_journal_suppressed_lines_total is above 0.",
    (
        counter(
            "llama_context_exceeded_total",
            _incidents,
            "Incidents in which requests failed for want of context. pool: the running requests together filled the "
            "shared pool, and all of them failed. slot: one request was larger than its own slot.",
            unit="incidents",
            labels=("cause",),
            source=_LOG,
            absent=_NO_LOG,
        ),
        counter(
            "llama_context_exceeded_requests_total",
            _failed,
            "Requests that failed in these incidents: what clients saw as HTTP 500 (pool) or 400 (slot).",
            unit="requests",
            labels=("cause",),
            source=_LOG,
            absent=_NO_LOG,
        ),
        counter(
            "llama_context_exceeded_log_lines_total",
            logged(lambda server: server.counters.error_lines),
            "Log lines with `Context size has been exceeded`, as grep -c counts them: several per incident, and how "
            "many depends on the build.",
            unit="lines",
            source=_LOG,
            absent=_NO_LOG,
        ),
        counter(
            "llama_kv_pressure_lines_total",
            logged(lambda server: server.counters.pressure_lines),
            "Log lines of batches that found no room in the KV cache, including those that fitted later. Models with "
            "sliding-window or hybrid attention run out below a fill of 1.",
            unit="lines",
            source=_LOG,
            absent=_NO_LOG,
        ),
        counter(
            "llama_kv_recoveries_total",
            logged(lambda server: server.counters.recoveries),
            "Times that a batch found no room and the server went on without an error, after making room or with a "
            "smaller batch.",
            unit="recoveries",
            source=_LOG,
            absent=_NO_LOG,
        ),
        counter(
            "llama_slot_purges_total",
            logged(lambda server: server.counters.purges),
            "Idle slots whose cache was given up because room was needed.",
            unit="purges",
            source=_LOG,
            absent=_NO_LOG,
        ),
        counter(
            "llama_slot_purged_tokens_total",
            logged(lambda server: server.counters.purged_tokens),
            "Tokens of cache that were given up so: each has to be read again when its conversation goes on.",
            unit="tokens",
            source=_LOG,
            absent=_NO_LOG,
        ),
        counter(
            "llama_context_shifts_total",
            logged(lambda server: server.counters.context_shifts),
            "Times that a slot forgot the middle of its context to go on writing: the answer gets worse in silence.",
            unit="shifts",
            source=_LOG,
            absent=_NO_LOG,
        ),
        counter(
            "llama_answers_truncated_total",
            logged(lambda server: server.counters.answers_truncated),
            "Answers cut short by the slot's own limit.",
            unit="answers",
            source=_LOG,
            absent=_NO_LOG,
        ),
        counter(
            "llama_requests_cancelled_total",
            logged(lambda server: server.counters.requests_cancelled),
            "Requests given up because their client went away.",
            unit="requests",
            source=_LOG,
            absent=_NO_LOG,
        ),
        gauge(
            "llama_last_incident_timestamp_seconds",
            one(lambda server: None if server.last_incident is None else server.last_incident.ended),
            "When the latest incident with cause pool was over, in unix seconds.",
            unit="seconds",
            source=_LOG,
            absent="before the first such incident",
        ),
        gauge(
            "llama_last_incident_slot_tokens",
            _last_slots,
            "Tokens that each slot held in the latest incident with cause pool: the largest one took most of it.",
            unit="tokens",
            labels=("slot",),
            source=_LOG,
            absent="before the first such incident, and for slots that took no part",
        ),
        gauge(
            "llama_last_incident_excess_tokens",
            one(lambda server: None if server.last_incident is None else server.last_incident.excess_tokens),
            "Tokens by which the slots together exceeded the pool in the latest incident with cause pool: the batch "
            "that found no room.",
            unit="tokens",
            source=_LOG,
            absent="before the first such incident, and while the sum or the capacity is unknown",
        ),
    ),
)

REQUESTS = MetricSection(
    "Requests",
    "Sizes and speeds of requests, told by the log at their end, and the server's own totals.",
    (
        histogram(
            "llama_request_tokens",
            lambda server: server.request_tokens,
            "Size of each request at its end, prompt and answer together; 0 if it was refused. Its high quantiles are "
            "the context that a slot needs.",
            unit="tokens",
            source=_LOG,
            absent=_NO_LOG,
        ),
        histogram(
            "llama_request_prompt_tokens",
            lambda server: server.request_prompt_tokens,
            "Size of each request's whole prompt, whether read or taken from cache, counted when the request ends. "
            "Newer builds (b10434 is one) tell it with a finished answer only: there, requests that died or were given "
            "up are not in it.",
            unit="tokens",
            source=_LOG,
            absent=_NO_LOG,
        ),
        histogram(
            "llama_prompt_tokens_per_second",
            lambda server: server.prompt_speed,
            "Speed at which each request's prompt was read. Tokens taken from cache are not in it.",
            unit="tokens per second",
            source=_LOG,
            absent=_NO_LOG,
        ),
        histogram(
            "llama_generation_tokens_per_second",
            lambda server: server.generation_speed,
            "Speed at which each request's answer was written.",
            unit="tokens per second",
            source=_LOG,
            absent=_NO_LOG,
        ),
        counter(
            "llama_http_requests_total",
            _http,
            "HTTP requests by path without query and status code, as the server logged them; a stream that fails on "
            "its way counts as 200. The number of paths is limited.",
            unit="requests",
            labels=("path", "code"),
            source="the access lines in the log of builds up to b9150; later ones write none",
            absent="where there is none, and before the first request of a path",
        ),
        counter(
            "llama_prompt_tokens_total",
            one(lambda server: server.upstream.prompt_tokens),
            "Prompt tokens read; builds before b10406 count those taken from cache too. From upstream's /metrics, "
            "which prints 6 significant digits.",
            unit="tokens",
            source=_UPSTREAM,
            absent=_UPSTREAM_ABSENT,
        ),
        counter(
            "llama_prompt_tokens_cached_total",
            one(lambda server: server.upstream.prompt_tokens_cached),
            "Prompt tokens taken from cache. From upstream's /metrics, which prints 6 significant digits.",
            unit="tokens",
            source=_UPSTREAM,
            absent=_UPSTREAM_ABSENT,
        ),
        counter(
            "llama_prompt_seconds_total",
            one(lambda server: server.upstream.prompt_seconds),
            "Time spent reading prompts. From upstream's /metrics, which prints 6 significant digits.",
            unit="seconds",
            source=_UPSTREAM,
            absent=_UPSTREAM_ABSENT,
        ),
        counter(
            "llama_predicted_tokens_total",
            one(lambda server: server.upstream.predicted_tokens),
            "Tokens of answers written. From upstream's /metrics, which prints 6 significant digits.",
            unit="tokens",
            source=_UPSTREAM,
            absent=_UPSTREAM_ABSENT,
        ),
        counter(
            "llama_predicted_seconds_total",
            one(lambda server: server.upstream.predicted_seconds),
            "Time spent writing answers. From upstream's /metrics, which prints 6 significant digits.",
            unit="seconds",
            source=_UPSTREAM,
            absent=_UPSTREAM_ABSENT,
        ),
        counter(
            "llama_decode_calls_total",
            one(lambda server: server.upstream.decode_calls),
            "Calls of llama_decode. From upstream's /metrics, which prints 6 significant digits.",
            unit="calls",
            source=_UPSTREAM,
            absent=_UPSTREAM_ABSENT,
        ),
        counter(
            "llama_draft_tokens_total",
            one(lambda server: server.upstream.draft_tokens),
            "Tokens proposed by speculative decoding. From upstream's /metrics, which prints 6 significant digits.",
            unit="tokens",
            source=_UPSTREAM,
            absent=_UPSTREAM_ABSENT,
        ),
        counter(
            "llama_draft_accepted_tokens_total",
            one(lambda server: server.upstream.draft_accepted_tokens),
            "Tokens proposed by speculative decoding and accepted. From upstream's /metrics, which prints 6 "
            "significant digits.",
            unit="tokens",
            source=_UPSTREAM,
            absent=_UPSTREAM_ABSENT,
        ),
    ),
)
