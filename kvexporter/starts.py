"""What is kept of a server's starts: the memory that each took, with the options and the pool that it had."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from kvexporter.memory_at_ready import Memory, SettledStart


class StartRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One start of a server. Memory and cache in bytes, times in unix seconds, the pool in tokens."""

    pid: int
    started: float
    settled: float
    late: bool = False
    """It was first looked at long after its start, so that use is in the numbers."""
    resident: int
    anon: int | None = None
    gpu: int | None = None
    capacity: int | None = None
    slots: int | None = None
    kv_cache: int | None = None
    model: str | None = None
    build: str | None = None
    options: dict[str, str] = {}
    """Those that decide about memory."""

    def settled_start(self) -> SettledStart:
        """As the model knows it."""
        memory = Memory(self.resident, self.anon, self.gpu)
        return SettledStart(self.pid, self.started, self.settled, self.late, memory)


_decoder = msgspec.json.Decoder(StartRecord)


def encode_start(record: StartRecord) -> bytes:
    """As it is stored."""
    return msgspec.json.encode(record)


def decode_start(detail: bytes) -> StartRecord | None:
    """What was stored; None for what cannot be read."""
    try:
        return _decoder.decode(detail)
    except (msgspec.DecodeError, ValueError):
        return None
