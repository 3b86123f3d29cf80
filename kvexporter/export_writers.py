"""Which servers wrote a journal export: one for each unit, more where processes of one unit ran side by side. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvexporter.facts import JournalEntry
from kvexporter.llama.events import Listening
from kvexporter.llama.log import parse_line

MOST_WRITERS = 200
MOST_LIVES = 100_000
"""Processes that are told apart; what further ones wrote counts as their unit's first server's."""

_Process = tuple[str | None, str | None, int | None]
"""Unit, invocation, process number."""


@dataclass(frozen=True, slots=True)
class Writer:
    """A server that wrote into the journal."""

    name: str
    unit: str | None = None


class TooManyWritersError(Exception):
    """More servers than one replay keeps apart."""


@dataclass(slots=True)
class _Life:
    """Where in the journal one process wrote lines of a llama-server, and where it said that it listens.

    By the entries' order: the clock may have been set.
    """

    process: _Process
    first: int
    last: int
    address: str | None = None


@dataclass(slots=True)
class _Lane:
    """Processes of one unit that ran one after the other: one server and its restarts."""

    last: int
    address: str | None
    processes: list[_Process] = field(default_factory=list)


class ExportWriters:
    """Finds the servers in one pass over all entries; then tells each entry's.

    A unit counts as a server's when one of its lines says something that only a llama-server does. Where there is no
    such unit, one whose lines mention the context error will do: people cut out what they paste. Raises
    TooManyWritersError.
    """

    def __init__(self, entries: Iterable[JournalEntry]) -> None:
        self.entries = 0
        """Entries seen in the pass."""
        self.units: set[str] = set()
        """All units that entries were of."""
        lives: dict[_Process, _Life] = {}
        mentions: set[str | None] = set()
        for entry in entries:
            self.entries += 1
            if entry.unit is not None and len(self.units) < MOST_WRITERS:
                self.units.add(entry.unit)
            _look(entry, self.entries, lives, mentions)
        by_unit: dict[str | None, list[_Life]] = {unit: [] for unit in mentions} if not lives else {}
        for life in lives.values():
            by_unit.setdefault(life.process[0], []).append(life)
        self._first: dict[str | None, Writer] = {}
        self._later: dict[_Process, Writer] = {}
        """Processes that did not write as their unit's first server."""
        names: set[str] = set()
        for unit in sorted(by_unit, key=lambda unit: unit or ""):
            self._add(unit, _lanes(by_unit[unit]), names)

    @property
    def writers(self) -> tuple[Writer, ...]:
        """All servers, by unit."""
        return (*self._first.values(), *dict.fromkeys(self._later.values()))

    def of(self, entry: JournalEntry) -> Writer | None:
        """The server that wrote this entry, or whose unit it is about; None where it is no server's."""
        if self._later and (writer := self._later.get(_process(entry))) is not None:
            return writer
        return self._first.get(entry.unit)

    def _add(self, unit: str | None, lanes: list[_Lane], names: set[str]) -> None:
        if len(names) + max(1, len(lanes)) > MOST_WRITERS:
            raise TooManyWritersError
        is_service = unit is not None and unit.endswith((".service", ".scope"))
        name = "llama-server" if unit is None else unit.removesuffix(".service")
        self._first[unit] = Writer(_unique(name, names), unit if is_service else None)
        for lane in lanes[1:]:
            number = lane.processes[0][2]
            # As a second process of a unit is named when it is discovered.
            later = Writer(_unique(lane.address or f"{name}:{number}", names), unit if is_service else None)
            self._later.update(dict.fromkeys(lane.processes, later))


def _process(entry: JournalEntry) -> _Process:
    return entry.unit, entry.invocation, entry.pid


def _look(entry: JournalEntry, number: int, lives: dict[_Process, _Life], mentions: set[str | None]) -> None:
    if entry.unit_event is not None or entry.continued:
        return
    parsed = parse_line(entry.message)
    if parsed is None:
        return
    if parsed.event is None:
        if len(mentions) < MOST_WRITERS:
            mentions.add(entry.unit)
        return
    process = _process(entry)
    life = lives.get(process)
    if life is None:
        if len(lives) >= MOST_LIVES:
            return
        life = lives[process] = _Life(process, number, number)
    life.last = number
    if type(parsed.event) is Listening and parsed.child_port is None:
        host = parsed.event.host
        life.address = f"{f'[{host}]' if ':' in host else host}:{parsed.event.port}"


def _lanes(lives: list[_Life]) -> list[_Lane]:
    """Put each process behind one that had ended when it began, of the same address if there is one."""
    lanes: list[_Lane] = []
    for life in sorted(lives, key=lambda life: life.first):
        ended = [lane for lane in lanes if lane.last < life.first]
        same = [lane for lane in ended if life.address is not None and lane.address == life.address]
        if same or ended:
            lane = (same or ended)[0]
        elif len(lanes) >= MOST_WRITERS:
            raise TooManyWritersError
        else:
            lanes.append(lane := _Lane(life.last, life.address))
        lane.last, lane.address = max(lane.last, life.last), life.address or lane.address
        lane.processes.append(life.process)
    return lanes


def _unique(name: str, names: set[str]) -> str:
    number, found = 1, name
    while found in names:
        number += 1
        found = f"{name}:{number}"
    names.add(found)
    return found
