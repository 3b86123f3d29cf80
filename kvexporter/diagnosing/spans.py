"""Reads a long journal with several processes: each takes parts of its time, and what they find comes in order.

Their lines are sifted: what is handed on is all that the books need, but for what running requests needed when.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor

import msgspec
from msgspec import Struct

from kvexporter import packing
from kvexporter.diagnosing.sieve import Sieve
from kvexporter.facts import JournalEntry
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.journal_span import OutOfOrderError, Span, SpanReader

PARTS = 48
"""Entries are rarely spread evenly over time: with many parts the processes end together all the same."""
MOST_PROCESSES = 4
WORTH_BYTES = 24 << 20
"""Of smaller journals one process has read all before two have begun."""


class Part(Struct, array_like=True):
    """What was found in a part of a journal, or in a chunk of one."""

    entries: list[JournalEntry] = msgspec.field(default_factory=list)
    """Without their text: what they say is in `reading`."""
    newest: float | None = None
    malformed: int = 0
    gap: bool = False
    sifted: bool = False
    """Lines that the books can do without are left out."""
    share: float | None = None
    """How much of the whole has been read with it, 0 to 1; None where that is not known."""


def pack(part: Part, begins: str | None, ends: str | None) -> bytes:
    """Give the bytes of a part, and of where in the journal it begins and ends."""
    return packing.pack((part, begins, ends), part)


unpack = msgspec.msgpack.Decoder(tuple[Part, str | None, str | None]).decode
"""The part and its edges of such bytes, which another process of this very program has packed."""


def read_parts(selection: JournalSelection, span: Span, processes: int | None = None) -> Iterator[Part]:
    """Read a span in order.

    `processes`: None decides by the journal's size. JournalUnavailableError when it cannot be opened; OutOfOrderError
    when its parts do not fit together, so that it must be read from the start by one process.
    """
    with SpanReader(selection) as reader:
        bounds = reader.bounds(span)
        if bounds is None:
            return
        if processes is None:
            processes = _worth(reader)
        parts = span.cut(*bounds, PARTS) if processes > 1 and not reader.has_split_lines else [span]
        if len(parts) == 1:
            for chunk in reader.read(span, Sieve(thorough=True).sift):
                share = _share(bounds, chunk.newest)
                yield Part(chunk.entries, chunk.newest, chunk.malformed, chunk.gap, share=share)
            return
    yield from _together(selection, parts, processes)


def _share(bounds: tuple[int, int], reached: float | None) -> float | None:
    first, last = bounds
    if reached is None or last <= first:
        return None
    return min(max((reached * 1e6 - first) / (last - first), 0.0), 1.0)


def _worth(reader: SpanReader) -> int:
    """How many processes are worth their start."""
    available = min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
    return available if reader.size >= WORTH_BYTES else 1


def _together(selection: JournalSelection, parts: list[Span], processes: int) -> Iterator[Part]:
    # Forking spares each of them the imports, and is safe while there is one thread.
    method = "fork" if threading.active_count() == 1 else "spawn"
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context(method), _begin, (selection,))
    waiting: deque[Future[bytes]] = deque()
    found = _Joined(len(parts))
    try:
        for part in parts:
            waiting.append(pool.submit(_read_part, part))
            if len(waiting) > 2 * processes:  # what is found must not pile up
                yield found.next(waiting.popleft().result())
        while waiting:
            yield found.next(waiting.popleft().result())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Joined:
    """Parts one after the other, each of which must begin where the one before has ended."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._done = 0
        self._edge: str | None = None

    def next(self, parcel: bytes) -> Part:
        part, begins, ends = unpack(parcel)
        if self._done and begins != self._edge:
            raise OutOfOrderError
        self._edge = ends
        self._done += 1
        part.share = self._done / self._count
        return part


# ---- in the processes ----------------------------------------------------------------------------------------------

_reader: SpanReader | None = None


def _begin(selection: JournalSelection) -> None:
    global _reader
    gc.disable()  # nothing here refers to itself, and looking for what does costs a tenth
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the one that asked ends the others
    _reader = SpanReader(selection)


def _read_part(span: Span) -> bytes:
    if _reader is None:
        raise RuntimeError("the journal is not open")
    found = Part(sifted=True)
    for chunk in _reader.read_part(span, Sieve().sift):
        found.entries += chunk.entries
        found.malformed += chunk.malformed
        found.newest = found.newest if chunk.newest is None else chunk.newest
        found.gap = found.gap or chunk.gap
    return pack(found, *_reader.edges)
