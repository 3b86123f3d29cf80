"""What the KV cache takes: from the log's size lines, else from the model file's header and the launch options."""

from __future__ import annotations

from dataclasses import dataclass

from kvexporter.geometry import StartupLog
from kvexporter.llama.launch import LaunchOptions
from kvexporter.llama.model_shape import ModelShape
from kvexporter.snapshot import KvBytesSource

DEFAULT_TYPE = "f16"
"""Every build's, where `-ctk` and `-ctv` say nothing."""
DISAGREEMENT = 0.02
"""Share by which log and header must differ to be told apart: the log rounds its sizes to 0.01 MiB."""


@dataclass(frozen=True, slots=True)
class KvBytes:
    """Bytes of the cache; None: not known."""

    cache: int | None = None
    per_token: float | None = None
    source: KvBytesSource | None = None
    """Where `per_token` comes from."""
    header_per_token: float | None = None
    """What the header tells, where it differs from what the log tells."""


def kv_bytes(
    startup: StartupLog, shape: ModelShape | None, options: LaunchOptions | None, capacity: int | None
) -> KvBytes:
    """Put together what the two sources tell. `capacity`: cells of all buffers together."""
    types = cache_types(options)
    header = shape.bytes_per_token(*types) if shape is not None and types is not None else None
    log = startup.bytes_per_token()
    if log is not None or startup.cache_bytes is not None:
        differs = header is not None and log is not None and abs(float(header) - log) > DISAGREEMENT * log
        return KvBytes(
            cache=startup.cache_bytes,
            per_token=log,
            source="journal" if log is not None else None,
            header_per_token=float(header) if header is not None and differs else None,
        )
    if shape is None or types is None or header is None:
        return KvBytes()
    cache = shape.cache_bytes(*types, capacity) if capacity is not None else None
    return KvBytes(cache=cache, per_token=float(header), source="header")


def cache_types(options: LaunchOptions | None) -> tuple[str, str] | None:
    """The types of K and V; None if an environment that cannot be read may name others."""
    if options is None:
        return None
    k, v = options.cache_type_k, options.cache_type_v
    if not options.environment_known and (k is None or v is None):
        return None
    return k or DEFAULT_TYPE, v or DEFAULT_TYPE
