"""What a log or the exporter's store tells of servers that are planned for: request sizes, pool, size of the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kvexporter.diagnosing.reading import LogInput, Progress, read_stories
from kvexporter.pool_geometry import Geometry
from kvexporter.reports.advice import request_size_facts
from kvexporter.request_sizes import size_facts
from kvexporter.server_memory import ServerMemory
from kvexporter.sizing import RequestSizeFacts
from kvexporter.snapshot import Incident
from kvexporter.store_reading import read_kept

_memories = msgspec.json.Decoder(dict[str, ServerMemory])
_incident = msgspec.json.Decoder(Incident)


class NoServerError(Exception):
    """It is not known which server is meant; the text says which there are."""


@dataclass(frozen=True, slots=True)
class Told:
    """One server as a log tells it."""

    name: str
    sizes: RequestSizeFacts
    geometry: Geometry
    kv_bytes_per_token: float | None
    cache_type_k: str | None
    cache_type_v: str | None
    context_train: int | None
    origin: str
    """Where it comes from, in words."""


def from_log(source: LogInput, progress: Progress = lambda share: None) -> list[Told]:
    """Read an old log, a recording or a journal. Raises what `read_stories` does."""
    path = source.log_file or source.journal_export or source.journal
    origin = "the journal" if path is None else "standard input" if str(path) == "-" else str(path)
    return [
        Told(
            story.name,
            request_size_facts(story),
            story.geometry,
            story.kv_bytes_per_token,
            story.cache_type_k,
            story.cache_type_v,
            story.context_train,
            origin,
        )
        for story in read_stories(source, progress)
    ]


def from_stores(paths: Sequence[Path]) -> list[Told]:
    """Read the first of the stores that is there, beside a running exporter. Raises StoreError; none there: empty."""
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        return []
    kept = read_kept(path)
    memories: dict[str, ServerMemory] = {}
    for servers in kept.journals:
        try:
            memories.update(_memories.decode(servers))
        except (msgspec.DecodeError, ValueError):  # of another version: what else is kept still counts
            continue
    found = []
    for name in dict.fromkeys((*memories, *kept.requests)):
        incidents = [each for detail in kept.incidents.get(name, ()) if (each := _decoded(detail)) is not None]
        sizes = size_facts(kept.requests.get(name, ()), incidents)
        memory = memories.get(name)
        if memory is None:
            found.append(Told(name, sizes, Geometry(), None, None, None, None, str(path)))
            continue
        log = memory.startup
        per_token, types = log.bytes_per_token(), (log.cache_type_k, log.cache_type_v)
        found.append(Told(name, sizes, log.geometry(), per_token, *types, log.training_context, str(path)))
    return found


def _decoded(detail: bytes) -> Incident | None:
    try:
        return _incident.decode(detail)
    except (msgspec.DecodeError, ValueError):
        return None


def only_server(servers: Sequence[Told], wanted: str | None) -> Told:
    """The server that is wanted, or the only one there is. NoServerError says which there are."""
    if wanted is not None:
        for told in servers:
            if told.name == wanted:
                return told
        raise NoServerError(f"there is no server {wanted!r}: {_names(servers)}")
    with_sizes = [told for told in servers if told.sizes.sizes]
    if len(with_sizes) == 1:
        return with_sizes[0]
    if not servers:
        raise NoServerError("no server's requests are known")
    if not with_sizes:
        raise NoServerError(f"no request of any server has ended yet: {_names(servers)}")
    raise NoServerError(f"several servers are known, choose one with --server: {_names(with_sizes)}")


def _names(servers: Sequence[Told]) -> str:
    names = [told.name for told in servers[:20]]
    return ", ".join(names) + ("…" if len(servers) > 20 else "") if names else "none is known"
