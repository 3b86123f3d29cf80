"""From the sizes of single requests to what is planned for: percentiles, and which sizes count. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvexporter.sizing import RequestSizeFacts
from kvexporter.snapshot import Incident


def size_facts(sizes: Iterable[int], incidents: Iterable[Incident] = ()) -> RequestSizeFacts:
    """What is known of requests that held so many tokens at their end.

    A size of 0 is that of a request that was refused before anything was read: what it would have held is in its
    incident, where the log told it, and counts instead. Requests that died in a full pool count with what they held.
    """
    refused = [incident.request_tokens for incident in incidents if incident.cause == "slot"]
    known = sorted([*(size for size in sizes if size > 0), *(size for size in refused if size)])
    if not known:
        return RequestSizeFacts()
    return RequestSizeFacts(tuple(known), percentile(known, 50), percentile(known, 95), known[-1])


def given_size_facts(p95: int, largest: int | None) -> RequestSizeFacts:
    """What is known where only the percentile was given, and perhaps the largest size."""
    return RequestSizeFacts(p95=p95, largest=largest)


def percentile(ascending: Sequence[int], percent: int) -> int:
    """The smallest size that holds at least so many of a hundred requests. ValueError without sizes."""
    if not ascending:
        raise ValueError("no sizes")
    return ascending[max(0, -(-len(ascending) * percent // 100) - 1)]
