"""What the demonstration waits to see of each server in the exporter's metrics, and says when it sees it."""

from __future__ import annotations

from kvexporter.demo.commentary import Reading, geometry_line, incident_table
from kvexporter.rules.thresholds import CRASH_RESTARTS


class Watch:
    """Looks at one server's readings. `wanted` says in words what makes it `met`."""

    wanted = "the server at work"

    def __init__(self, server: str) -> None:
        self.server = server
        self.times = 0
        """How often it was seen."""

    @property
    def met(self) -> bool:
        return self.times > 0

    def look(self, reading: Reading) -> list[str]:
        """Look at the newest reading; the lines to say about what is new."""
        if reading.up and reading.working and reading.fill:
            self.times += 1
        return []


class AgentsWatch(Watch):
    """Waits for the pool to run out, each time."""

    wanted = "the incident"

    def __init__(self, server: str) -> None:
        super().__init__(server)
        self._incidents = 0
        self._failed = 0
        self._told = False

    def look(self, reading: Reading) -> list[str]:
        lines = []
        if not self._told and (line := geometry_line(reading)):
            self._told = True
            lines.append(f"\n{self.server}: {line}\n")
        # Who held what is shown with the count or a moment later.
        if reading.incidents > self._incidents and reading.incident_slots and reading.excess is not None:
            lines.append(f"\n{self.server}: {incident_table(reading, self._failed)}\n    (read from /metrics)\n")
            self._incidents, self._failed = reading.incidents, reading.requests_failed
            self.times += 1
        return lines


class SleepingWatch(Watch):
    """Waits for it to fall asleep, and to be woken by a request."""

    wanted = "the server asleep and then woken"

    def __init__(self, server: str) -> None:
        super().__init__(server)
        self._asleep = False

    def look(self, reading: Reading) -> list[str]:
        if reading.state == "sleeping" and not self._asleep:
            self._asleep = True
            return [f"    {self.server}: has fallen asleep; from now on it is asked for nothing that would wake it"]
        if reading.state == "ready" and self._asleep:
            self._asleep = False
            self.times += 1
            return [f"    {self.server}: woken by a client's request"]
        return []


class CrashingWatch(Watch):
    """Waits for the crash loop: the restarts that make it one and the exit statuses, where the log has them."""

    wanted = "the crash loop"

    def __init__(self, server: str, log_has_exits: bool) -> None:
        super().__init__(server)
        self._log_has_exits = log_has_exits
        self._told: set[str] = set()

    def look(self, reading: Reading) -> list[str]:
        if self._log_has_exits:
            self.times += reading.restarts >= CRASH_RESTARTS and bool(reading.exits)
        else:
            self.times += reading.state == "down"
        new = [code for code in reading.exits if code not in self._told]
        self._told.update(new)
        return [f"    {self.server}: ended with exit status {code}; systemd will start it again" for code in new]
