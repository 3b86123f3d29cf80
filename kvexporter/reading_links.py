"""Which process reads which logs: each place has one of its own while there are few, and what hangs is left alone.

A place is where logs of a kind lie together: a folder, the host's journal, standard input.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from kvexporter.reading.link import Listener, ReadingLink
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.log_selection import LogFileSelection, Selection
from kvexporter.turns import Turns

log = logging.getLogger(__name__)

MOST_READERS = 8
"""Processes that read journals, and as many that read log files. Each takes 20 MB, and every container's log is in a
folder of its own; beyond this number folders share one."""

Place = tuple[str, str | None]
"""Kind and folder (None: the host's own journal)."""


def place_of(selection: Selection) -> Place:
    """Where a log lies."""
    if isinstance(selection, JournalSelection):
        return "journal", selection.directory
    if isinstance(selection, LogFileSelection):
        return "files", selection.folder
    return "stdin", None


class ReadingLinks:
    """The processes of all logs: a dead disk holds up nothing but what is on it."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._links: dict[Place, ReadingLink] = {}
        self._hung: dict[Place, float] = {}
        """Where a process hung → when that was seen (monotonic), until something is heard of there again."""

    def __iter__(self) -> Iterator[tuple[str, ReadingLink]]:
        """Kind and process, each once."""
        return iter({link: (kind, link) for (kind, _), link in self._links.items()}.values())

    def of(self, place: Place) -> ReadingLink:
        """Who reads a place."""
        if place not in self._links:
            self._links[place] = self._free(place[0])
        return self._links[place]

    def keep(self, places: Iterable[Place]) -> list[ReadingLink]:
        """Forget all other places; the processes that have none left, to be ended."""
        before = {link for _, link in self}
        wanted = set(places)
        self._links = {place: link for place, link in self._links.items() if place in wanted}
        self._hung = {place: seen for place, seen in self._hung.items() if place in wanted}
        return list(before - {link for _, link in self})

    def part(self, heard: Mapping[Listener, tuple[Place, float]]) -> dict[Place, ReadingLink]:
        """Part what hangs from what shares its process: which places move, and where to. To be called now and then.

        `heard`: each listener's place, and when it heard something last (monotonic).
        """
        answered = {place: max((at for its, at in heard.values() if its == place), default=0.0) for place in self._hung}
        self._hung = {place: seen for place, seen in self._hung.items() if answered[place] <= seen}
        hanging = []
        for kind, link in self:
            listener = link.hangs_with()
            if listener is not None and listener in heard:
                self._hung.setdefault(heard[listener][0], time.monotonic())
                hanging.append((kind, link))
        for kind, link in hanging:
            moved = self._parted(kind, link)
            if moved:
                self._links.update(moved)
                return moved
        return {}

    def _parted(self, kind: str, link: ReadingLink) -> dict[Place, ReadingLink]:
        hung = [at for at in self._at(link) if at in self._hung]
        sound = [at for at in self._at(link) if at not in self._hung]
        if not sound:
            return {}
        alike = {its for of, its in self if of == kind}
        if len(alike) < MOST_READERS or any(not its.silence() for its in alike):
            log.warning("%s hangs: the other logs that its process has read go on in others", _named(hung))
            moved: dict[Place, ReadingLink] = {}
            for at in sound:
                moved[at] = self._links[at] = self._free(kind)
            return moved
        # Every process hangs somewhere: this one is needed by those that do not, and what hangs waits with its like.
        another = next((self._links[at] for at in self._hung if at[0] == kind and self._links[at] is not link), None)
        if another is None or not link.give_up():
            return {}
        log.warning("%s hangs, as do others: they share a process from now on", _named(hung))
        return dict.fromkeys(hung, another)

    def _at(self, link: ReadingLink) -> list[Place]:
        return [place for place, its in self._links.items() if its is link]

    def _free(self, kind: str) -> ReadingLink:
        """A process for one more place: a new one, or of those that answer the one with the fewest."""
        alike = Counter(link for (its, _), link in self._links.items() if its == kind)
        if len(alike) < MOST_READERS:
            return ReadingLink(self._turns, stdin=kind == "stdin")
        return min([link for link in alike if not link.silence()] or alike, key=alike.__getitem__)


def _named(places: list[Place]) -> str:
    return ", ".join(where or kind for kind, where in places)
