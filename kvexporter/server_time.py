"""What passing time changes in one server's model, and what it does when its clock is set back."""

from __future__ import annotations

import math

from kvexporter.server_fill import incident_ended, settle
from kvexporter.server_parts import ServerParts
from kvexporter.spells import Spells

BEHIND_SECONDS = 120.0
"""A log whose lines of so long ago may still come is being caught up with. More than the patience with late lines, and
three words of the reading process: it says every 30 s that it has read all, so an idle log is not behind."""

FORESEEN_SECONDS = 3600.0
"""Of a log that is caught up with, the forecast looks at what is younger, as if it had begun to watch then."""

CLOCK_STEP_SECONDS = 60.0
"""Facts may be so much ahead of the clock that looks at them."""


def pass_time(parts: ServerParts, at: float) -> None:
    """Something was seen at `at`. While the log is behind only its own clock counts, which `pass_log_time` moves."""
    if not parts.behind:
        pass_log_time(parts, at)


def pass_log_time(parts: ServerParts, at: float) -> None:
    """A line was logged at `at`: what was in force until then is accounted for."""
    if at > parts.now:
        parts.occupancy.advance(at)
        parts.now = at


def tick(parts: ServerParts, at: float, quiet: float) -> None:
    """Time has come to `at` and nothing else was heard; lines of the last `quiet` seconds may still come."""
    if at < parts.now - CLOCK_STEP_SECONDS:
        # Only the live clock ticks, and no fact is newer than it: the clock was set back. What came under the wrong
        # one would be the latest for ever, and all that comes now too old.
        parts.now = at
        parts.occupancy.restart(at)
        parts.forecast.restart()
        parts.spells = Spells()
        parts.unit_life.clock_set_back(at)
    behind = quiet > BEHIND_SECONDS
    if parts.behind and not behind:
        # The log told of times past; what is in force from now on begins now.
        parts.now = max(parts.now, at)
        parts.occupancy.restart(parts.now)
    parts.behind = behind
    parts.foreseen_from = at - FORESEEN_SECONDS if behind else -math.inf
    pass_time(parts, at)
    ledger = parts.ledger
    incidents = ledger.incidents_seen
    if not behind:  # else the lines that go on with what is open may lie in the part that was not read yet
        ledger.tick(at - quiet, parts.geometry, parts.build)
    if ledger.incidents_seen != incidents:
        incident_ended(parts, at)
    settle(parts, at)
