"""Has the header of each server's model file read, once for each of its starts, aside from the loop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from kvexporter.aside import Aside
from kvexporter.facts import FoundProcess, GgufHeader
from kvexporter.llama.model_shape import ModelShape, ShapeError, model_shape
from kvexporter.server import Server
from kvexporter.sources.gguf_header import HeaderError
from kvexporter.sources.model_file import ModelFiles
from kvexporter.targets import Target

log = logging.getLogger(__name__)

READ_SECONDS = 30.0
MOST_HANGING = 4
"""Reads that have not come back; with so many on dead disks no more are begun."""

_Key = tuple[Server, int, float, tuple[str, ...]]
"""The model that was told, its process, and its file's names."""


class Watched(Protocol):
    """A server that is watched."""

    @property
    def target(self) -> Target: ...
    @property
    def model(self) -> Server: ...


class HeaderReading:
    """Remembers which starts it has looked at."""

    def __init__(self, files: ModelFiles | None = None, seconds: float = READ_SECONDS) -> None:
        self._files = files or ModelFiles()
        self._seconds = seconds
        self._seen: dict[str, _Key] = {}
        # Both are also changed by the threads that read, one step at a time.
        self._under_way: set[object] = set()
        """Reads that have not come back."""
        self._back: list[str] = []
        """Servers whose read came back too late: their disks answer again."""

    async def step(self, servers: Iterable[Watched]) -> None:
        """Look at all servers that were started since the last step, or whose file's name has been learnt."""
        servers = list(servers)
        while self._back:
            self._seen.pop(self._back.pop(), None)
        names = {watched.target.name for watched in servers}
        self._seen = {name: key for name, key in self._seen.items() if name in names}
        for watched in servers:
            process = watched.target.process
            if process is None:
                continue
            names_told = watched.model.model_names
            key = (watched.model, process.pid, process.start_time, names_told)
            if not names_told or self._seen.get(watched.target.name) == key or len(self._under_way) >= MOST_HANGING:
                continue
            self._seen[watched.target.name] = key
            watched.model.model_read(await self._shape(watched.target.name, process, names_told))

    async def _shape(self, server: str, process: FoundProcess, names: tuple[str, ...]) -> ModelShape | None:
        began = time.monotonic()
        try:
            header = await self._read(
                server, lambda: self._files.read(names, process.pid, in_container=process.container is not None)
            )
            return model_shape(header)
        except (HeaderError, ShapeError, OSError, TimeoutError) as error:
            log.info("%s: nothing is computed from its model's file: %s", server, error)
        finally:
            log.debug("%s: its model's file took %.3f s", server, time.monotonic() - began)
        return None

    async def _read(self, server: str, work: Callable[[], GgufHeader]) -> GgufHeader:
        late = threading.Event()

        def counted() -> GgufHeader:
            try:
                return work()
            finally:
                self._under_way.discard(late)
                if late.is_set():
                    self._back.append(server)

        self._under_way.add(late)
        # One of its own: a read that hangs must not be in the way of other files'.
        reading: Aside[GgufHeader] = Aside("reading the model's file")
        try:
            return await reading.call(counted, self._seconds)
        except TimeoutError:
            late.set()
            raise
