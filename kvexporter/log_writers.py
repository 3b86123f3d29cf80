"""Who wrote a line of a journal: the unit's server, one of several processes in it, or a router's child."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from kvexporter.facts import JournalEntry
from kvexporter.feed import ChildNames
from kvexporter.intake import MAX_CHILDREN
from kvexporter.server import Server
from kvexporter.server_memory import ServerMemory
from kvexporter.sources.discovery import describe
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.log_selection import Selection
from kvexporter.watched import MAX_SERVERS, Roster, Watched

RECENT_SECONDS = 60.0
"""An older line's process number may be another process's by now."""


class LogWriters:
    """The writers of one journal, whose servers are `members`; its router's children are added as they turn up."""

    def __init__(self, roster: Roster, selection: Selection, members: list[str], clock: Callable[[], float]) -> None:
        self.names = ChildNames()
        self.memories: Callable[[], dict[str, ServerMemory]] = dict
        """What is known of servers that are not watched now."""
        self._roster = roster
        self._selection = selection
        self._members = members
        self._clock = clock

    def of(self, port: int | None, pid: int | None) -> Server:
        """The model of the server that wrote a line."""
        watched = self._roster.watched
        if port is not None:
            return self._child(self._members[0], port).model
        if len(self._members) > 1 and pid is not None:
            for name in self._members:
                process = watched[name].target.process
                if process is not None and process.pid == pid:
                    return watched[name].model
        return watched[self._members[0]].model

    def matter_from(self) -> float:
        """From which time on it matters which process wrote a line: reading that for a backlog takes long."""
        if len(self._members) != 1:
            return -math.inf
        if not isinstance(self._selection, JournalSelection):
            return math.inf  # its lines do not tell
        if self._selection.directory is None and self._roster.watched[self._members[0]].target.process is None:
            return self._clock() - RECENT_SECONDS
        return math.inf

    def ask(self, watched: Watched, entry: JournalEntry) -> None:
        """Take the process that wrote a line just now for the server's, if no process is known by its name."""
        if watched.target.process is not None or entry.pid in (None, watched.writers_tried):
            return
        if entry.pid is None or entry.unit_event is not None or self._clock() - entry.at > RECENT_SECONDS:
            return
        selection = watched.target.selection
        if not isinstance(selection, JournalSelection) or selection.directory is not None:
            return  # a copied journal's process numbers mean nothing here
        watched.writers_tried = entry.pid
        watched.writer = describe(entry.pid)
        if watched.writer is not None:
            self._roster.update(watched, watched.target, self._clock())

    def _child(self, router: str, port: int) -> Watched:
        """A router's child, known from the host's processes or only by its lines in the router's log."""
        watched = self._roster.watched
        name = self._child_name(router, port)
        known = watched.get(name)
        if known is not None and known.target.child_of == router:
            return known
        children = sum(w.target.child_of == router for w in watched.values())
        if children >= MAX_CHILDREN or len(watched) >= MAX_SERVERS:
            self._roster.drop("child", f"{router}: too many children: lines of further ones count as the router's own")
            return watched[router]
        return self._roster.add(
            replace(
                watched[router].target,
                name=name,
                selection=None,
                api=None,
                process=None,
                options=None,
                child_of=router,
                port=port,
                configured=False,
            )
        )

    def _child_name(self, router: str, port: int) -> str:
        """Under which name the child of a port is watched: its model's, where that is known, else the port's."""
        watched, told = self._roster.watched, self.names.get(port)
        likely = f"{router}:{port if told is None else told}"
        if likely in watched:
            return likely
        for name, child in watched.items():
            if child.target.child_of == router and port in (child.target.port, _port(child.model.listening)):
                return name
        if told is not None:
            return likely
        return next((n for n, m in self.memories().items() if n not in watched and _port(m.listening) == port), likely)


def _port(listening: tuple[str, int] | None) -> int | None:
    return listening[1] if listening is not None else None
