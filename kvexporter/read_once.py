"""One journal read to its end through the model, for commands that look once and end."""

from __future__ import annotations

from kvexporter.intake import LogIntake
from kvexporter.reading.readers import log_reader
from kvexporter.server import Server
from kvexporter.sources.drain import Seek
from kvexporter.sources.journal_chunk import always
from kvexporter.sources.journal_library import JournalUnavailableError
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.log_health import log_health
from kvexporter.sources.log_selection import Selection, StdinSelection

_SLICE_SECONDS = 1.0


def read_journal(selection: Selection, name: str, *, seek: Seek = "head") -> list[Server]:
    """The server that writes into a journal or log file, and if it is a router its children; none if it says nothing.

    `seek`: from the oldest entry, or from the start of the unit's current run. JournalUnavailableError says what
    stands in the way.
    """
    if isinstance(selection, StdinSelection):
        raise JournalUnavailableError("its log is piped into the running exporter, and can be read nowhere else")
    found: dict[int | None, Server] = {}
    unit = selection.about if isinstance(selection, JournalSelection) else None

    def server(port: int | None, _pid: int | None) -> Server:
        if port not in found:
            found[port] = Server(name if port is None else f"{name}:{port}", unit=unit)
        return found[port]

    health = log_health(selection)
    if not health.ok:
        raise JournalUnavailableError("; ".join(health.problems))
    intake = LogIntake(server)
    reader = log_reader(selection, own_pid=None, writers_from=always)
    try:
        reader.open(seek=seek)
        while not (result := reader.drain(_SLICE_SECONDS, intake.entry)).complete:
            if result.failure is not None:
                raise JournalUnavailableError(result.failure)
    finally:
        reader.close()
    for each in found.values():
        each.conclude()
    return list(found.values())
