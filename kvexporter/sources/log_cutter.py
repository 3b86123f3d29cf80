"""Cuts what was read of a log into lines, and hands on those that say something."""

from __future__ import annotations

from collections.abc import Iterable

from kvexporter.facts import JournalEntry
from kvexporter.sources.drain import DrainResult, Handler
from kvexporter.sources.journal_chunk import Wanted
from kvexporter.sources.log_lines import MAX_LINE, LineForms


class LineCutter:
    """Holds what is known in mid-log. `wanted` sees every line; those of which it makes nothing end there."""

    def __init__(
        self, wanted: Wanted, *, inside: bool = False, pieces: Iterable[str] = (), newest: float = 0.0
    ) -> None:
        self.inside = inside
        """A line that is too long was handed on; its rest is passed over."""
        self.carried = b""
        """The beginning of a line of which nothing else is left where it stood."""
        self.newest = newest
        """Time of the last line (unix seconds)."""
        self._wanted = wanted
        self._forms = LineForms(pieces)

    @property
    def pieces(self) -> tuple[str, ...]:
        """Streams of a container whose last line goes on in their next entry."""
        return self._forms.pieces

    def take(self, fresh: bytes, now: float, at: float, result: DrainResult, handler: Handler) -> int:
        """Hand on whole lines; the bytes that are done with. `at`: time of lines that tell none, never after `now`."""
        end = fresh.rfind(b"\n") + 1
        if not end:
            if self.inside:
                return len(fresh)
            if len(self.carried) + len(fresh) < MAX_LINE:
                return 0
            line, self.carried, self.inside = self.carried + fresh, b"", True
            self._lines([line], now, at, result, handler)
            return len(fresh)
        lines = fresh[: end - 1].split(b"\n")
        if self.inside:
            self.inside = False
            del lines[0]
        elif self.carried:
            lines[0], self.carried = self.carried + lines[0], b""
        self._lines(lines, now, at, result, handler)
        return end

    def _lines(self, lines: list[bytes], now: float, at: float, result: DrainResult, handler: Handler) -> None:
        if not lines:
            return
        texts: list[bytes] = []
        times: list[float] = []
        pieces: list[bool] = []
        for line in lines:
            text, stamp, continued = self._forms.take(line[:MAX_LINE].rstrip(b"\r"))
            self.newest = min(now, max(self.newest, at) if stamp is None else stamp)
            texts.append(text)
            times.append(self.newest)
            pieces.append(continued)
        result.read += len(lines)
        result.newest = self.newest
        for text, time, continued, reading in zip(texts, times, pieces, self._wanted(texts), strict=True):
            if reading:
                result.wanted += 1
                result.continued += continued
                said, told = (text, None) if reading is True else (b"", reading)
                handler(JournalEntry(time, said, None, None, None, continued, told))
