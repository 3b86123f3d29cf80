"""Upstream's `/metrics` text as numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from kvexporter.llama.errors import unexpected
from kvexporter.llama.json_fields import UNREADABLE


@dataclass(frozen=True, slots=True)
class UpstreamMetrics:
    """The samples of llama-server's own `/metrics` that mean what they say; None where absent or not finite.

    The averages since the last scrape (`prompt_tokens_seconds`, `predicted_tokens_seconds`) are left out: any other
    scraper changes them.
    """

    prompt_tokens_total: float | None = None
    prompt_tokens_cached_total: float | None = None
    prompt_seconds_total: float | None = None
    predicted_tokens_total: float | None = None
    predicted_seconds_total: float | None = None
    decode_calls_total: float | None = None
    draft_tokens_total: float | None = None
    draft_accepted_tokens_total: float | None = None
    busy_slots_per_decode: float | None = None
    largest_sequence_tokens: float | None = None
    requests_processing: float | None = None
    requests_deferred: float | None = None
    kv_cache_usage_ratio: float | None = None
    """Builds before b5441 only."""
    kv_cache_tokens: float | None = None


_FIELDS = {
    "prompt_tokens_total": "prompt_tokens_total",
    "prompt_tokens_cached_total": "prompt_tokens_cached_total",
    "prompt_seconds_total": "prompt_seconds_total",
    "tokens_predicted_total": "predicted_tokens_total",
    "tokens_predicted_seconds_total": "predicted_seconds_total",
    "n_decode_total": "decode_calls_total",
    "spec_decode_num_draft_tokens_total": "draft_tokens_total",
    "spec_decode_num_accepted_tokens_total": "draft_accepted_tokens_total",
    "n_busy_slots_per_decode": "busy_slots_per_decode",
    "n_past_max": "largest_sequence_tokens",  # b6189 to b6889
    "n_tokens_max": "largest_sequence_tokens",
    "requests_processing": "requests_processing",
    "requests_deferred": "requests_deferred",
    "kv_cache_usage_ratio": "kv_cache_usage_ratio",
    "kv_cache_tokens": "kv_cache_tokens",
}
"""Upstream's name without its prefix → our field."""

_MOST = 2.0**53
"""Above, not even a count of tokens over years makes sense."""

_PREFIX = "llamacpp:"
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.ASCII | re.IGNORECASE)


def parse_metrics(text: str | bytes) -> UpstreamMetrics:
    """The samples of one body of llama-server's `/metrics`.

    Comments are not read: TYPE is wrong in many builds. Labels are ignored, and of several samples of one name the
    first counts. A value that is not finite, negative or beyond belief is left out, the rest is kept. Counters above
    999,999 have six digits: that is all upstream prints.

    Raises MalformedBody if there is no sample of llama-server at all (HTML, a JSON error, an empty body).
    """
    body = text.encode(errors="replace") if isinstance(text, str) else text
    values: dict[str, float] = {}
    seen = False
    for name, value in _samples(_unescaped(body)):
        seen = True
        field = _FIELDS.get(name)
        if field is not None and 0 <= value <= _MOST:
            values.setdefault(field, value)
    if not seen:
        raise unexpected(body, "metrics of llama-server")
    return UpstreamMetrics(**values)


def _unescaped(body: bytes) -> str:
    """The exposition as text. Builds from b7090 to b7190 send it as one JSON string."""
    if body.lstrip().startswith(b'"'):
        try:
            return msgspec.json.decode(body, type=str)
        except UNREADABLE:
            # A truncated string still holds whole lines.
            return body.decode(errors="replace").replace("\\n", "\n").lstrip().removeprefix('"')
    return body.decode(errors="replace")


def _samples(exposition: str) -> Iterator[tuple[str, float]]:
    """Each sample's name without the prefix, and its value; lines that are anything else are passed over."""
    for line in exposition.splitlines():
        sample = line.strip()
        if not sample.startswith(_PREFIX):
            continue
        name, brace, labels = sample.partition("{")
        name, *words = (name + " " + labels.rpartition("}")[2]).split() if brace else sample.split()
        # A second word is a timestamp.
        if len(words) in (1, 2) and (_NUMBER.fullmatch(words[0]) or _NOT_FINITE.fullmatch(words[0])):
            yield name.removeprefix(_PREFIX), float(words[0])
