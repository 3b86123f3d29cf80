"""The books of one journal: the server's that writes into it, and if it is a router, its children's. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvexporter.diagnosing.logbook import LogBook, ServerStory
from kvexporter.facts import JournalEntry
from kvexporter.feed import ChildNames
from kvexporter.intake import MAX_CHILDREN
from kvexporter.llama.access_log import Asked
from kvexporter.llama.events import ChildStarting, LogLine


class Books:
    """Takes a journal's entries in order, each with what the sieve made of it in `reading`."""

    def __init__(self, name: str, unit: str | None, last: int) -> None:
        self._own = LogBook(name, unit, last=last)
        self._last = last
        self._children: dict[str, LogBook] = {}
        self._names = ChildNames()
        self._newest: float | None = None
        self._gap = False
        self._sifted = False

    def entry(self, entry: JournalEntry) -> None:
        """Take one entry."""
        reading = entry.reading
        if entry.continued:
            # A piece is no line, but grep would count it.
            if type(reading) is LogLine and reading.mentions_context_error:
                self._own.line(LogLine(None, mentions_context_error=True), entry.at)
        elif type(reading) is LogLine:
            book = self._own
            if reading.child_port is not None:
                book = self._child(reading.child_port)
            elif type(reading.event) is ChildStarting:
                self._names.starting(reading.event)
            book.line(reading, entry.at)
        elif entry.unit_event is not None:
            self._own.unit_event(entry.unit_event, entry.at)
        elif type(reading) is Asked:
            book = self._own if reading.child_port is None else self._child(reading.child_port)
            book.asked(reading.address, entry.at, failed=reading.failed)

    def sifted(self) -> None:
        """The lines are not all there, but those that the books need."""
        if not self._sifted:
            self._sifted = True
            for book in (self._own, *self._children.values()):
                book.sifted()

    def preface(self, entries: Iterable[JournalEntry]) -> None:
        """Entries from before the time that is looked at: they tell how the pool is cut, and are not counted."""
        for entry in entries:
            reading = entry.reading
            if type(reading) is LogLine and reading.event is not None:
                if type(reading.event) is ChildStarting:
                    self._names.starting(reading.event)
                book = self._own if reading.child_port is None else self._child(reading.child_port)
                book.preface(reading.event)

    def read_to(self, newest: float | None, *, gap: bool = False) -> None:
        """The journal has been read up to there; with `gap`, not all of it could be."""
        self._newest = newest if newest is not None else self._newest
        self._gap = self._gap or gap

    def stories(self, *, since_start: bool = False) -> list[ServerStory]:
        """No more entries will come: what was told of each server. None where nothing was."""
        books = [self._own, *(self._children[name] for name in sorted(self._children))]
        found = []
        for book in books:
            if self._newest is not None and book.told:
                book.saw(self._newest)
            book.conclude()
            if book.told:
                found.append(replace(book.story(), since_start=since_start, gap=self._gap))
        return found

    def _child(self, port: int) -> LogBook:
        """A child by its model's name, which may come back on another port."""
        told = self._names.get(port)
        name = f"{self._own.name}:{port if told is None else told}"
        book = self._children.get(name)
        if book is None:
            if len(self._children) >= MAX_CHILDREN:
                return self._own
            book = self._children[name] = LogBook(name, self._own.unit, last=self._last)
            if self._sifted:
                book.sifted()
        return book
