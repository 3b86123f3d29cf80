"""From what the sources read to the model: raw lines and answers through the language floor into the right server."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from kvexporter.facts import Endpoint, JournalEntry, PollReason
from kvexporter.llama.errors import MalformedBody
from kvexporter.llama.events import ChildStarting, LogLine
from kvexporter.llama.exposition import parse_metrics
from kvexporter.llama.log import CONTEXT_ERROR, parse_line
from kvexporter.llama.props import parse_health, parse_props
from kvexporter.llama.slots import parse_slots
from kvexporter.server import Server

log = logging.getLogger(__name__)

MAX_CHILDREN = 64
"""Router children that one journal may bring forth: their ports come out of the log's text."""


def take_answer(
    server: Server, endpoint: Endpoint, body: bytes, at: float, asked: float | None = None
) -> PollReason | None:
    """Hand one good answer to the model; the reason if it was not what the endpoint answers. Times: came, asked for."""
    try:
        match endpoint:
            case "slots":
                server.slots_polled(parse_slots(body), at, asked=asked)
            case "metrics":
                server.metrics_polled(parse_metrics(body), at)
            case "props":
                server.props_polled(parse_props(body), at)
            case "health":
                server.health_polled(at, sleeping=parse_health(body))
            case "models":
                server.health_polled(at)
    except MalformedBody as error:
        log.debug("%s: /%s: %s", server.name, endpoint, error)
        server.poll_failed(endpoint, "malformed", at)
        return "malformed"
    return None


class LogIntake:
    """The lines of one journal (or file), given to the servers that write into it.

    One journal has one server, or a router and its children, whose lines carry their port. `server_of(port, pid)` finds
    the server of a line, or makes one for a child not seen before.
    """

    def __init__(
        self,
        server_of: Callable[[int | None, int | None], Server],
        child_starting: Callable[[ChildStarting], None] | None = None,
    ) -> None:
        """`child_starting` is told which model's process a router's log says to start on which port."""
        self._server_of = server_of
        self._child_starting = child_starting
        self.results: Counter[str] = Counter()
        """Result (matched, ignored, continued, malformed) → lines."""

    def entry(self, entry: JournalEntry) -> Server | None:
        """Take one entry; the server it was about, if it said anything."""
        reading = entry.reading
        if type(reading) is LogLine and not entry.continued:
            return self._take(reading, entry.at, entry.pid)
        if entry.unit_event is not None:
            self.results["matched"] += 1
            server = self._server_of(None, None)
            server.unit_event(entry.unit_event, entry.at)
            return server
        if entry.continued:
            self.results["continued"] += 1
            mentions = reading.mentions_context_error if type(reading) is LogLine else CONTEXT_ERROR in entry.message
            if not mentions:
                return None
            server = self._server_of(None, entry.pid)  # a piece is no line, but grep would count it
            server.line(LogLine(None, mentions_context_error=True), entry.at)
            return server
        return self._take(parse_line(entry.message), entry.at, entry.pid)

    def line(self, message: bytes, at: float, pid: int | None = None) -> Server | None:
        """Take one line of text."""
        return self._take(parse_line(message), at, pid)

    def _take(self, parsed: LogLine | None, at: float, pid: int | None) -> Server | None:
        if parsed is None:
            self.results["ignored"] += 1
            return None
        self.results["matched"] += 1
        event = parsed.event
        if type(event) is ChildStarting and self._child_starting is not None and parsed.child_port is None:
            self._child_starting(event)
        server = self._server_of(parsed.child_port, pid)
        server.line(parsed, at)
        return server
