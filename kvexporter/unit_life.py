"""What systemd has told of a server's unit: whether it was stopped on request, its latest restarts, exits and kills.

Facts and their times go in; no clock, no I/O. It is plain data, since a server that was stopped stays so over a restart
of the exporter.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvexporter.facts import (
    UnitEvent,
    UnitExited,
    UnitFailed,
    UnitNotStarted,
    UnitOutOfMemory,
    UnitRestartScheduled,
    UnitStarted,
    UnitStarting,
    UnitStopped,
    UnitStopping,
)

KEPT_RESTARTS = 100


@dataclass(slots=True)
class UnitLife:
    """One server's unit. Times are unix seconds; None: systemd has told nothing of that kind."""

    stopped_on_request: bool | None = None
    """systemd was asked to stop the unit, and it has not been started since."""
    restarts_at: list[float] = field(default_factory=list)
    """When systemd started the unit anew by itself: the latest times, oldest first."""
    exited_at: float | None = None
    """When its process last ended other than cleanly …"""
    exit_code: str | None = None
    """… and with which exit status or signal."""
    oom_killed_at: float | None = None
    stopping: bool = False
    """It is being stopped on request: whatever its process ends with now is of that."""
    restarting: bool = False
    """systemd is about to start it anew by itself, which it words as a stop and a start."""

    def observe(self, event: UnitEvent, at: float) -> None:
        """Take what systemd says of the unit."""
        match event:
            case UnitStarting() | UnitStarted():
                self.stopped_on_request = self.stopping = self.restarting = False
            case UnitStopping():
                self.stopped_on_request = self.stopping = True
            case UnitStopped():
                # A unit that waits for its restart, or whose process has ended, is stopped without the word before.
                self.stopped_on_request = self.stopping or not self.restarting
                self.stopping = self.restarting = False
            case UnitRestartScheduled():
                self.stopped_on_request, self.restarting = False, True
                self.restarts_at.append(at)
                del self.restarts_at[:-KEPT_RESTARTS]
            case UnitExited(_, status):
                self.exited_at, self.exit_code = at, status
                self._fell()
            case UnitFailed() | UnitNotStarted():
                self._fell()
            case UnitOutOfMemory():
                self.oom_killed_at = at
                self._fell()
            case _:
                pass

    def answered(self) -> None:
        """The server answers: it has been started since a stop, though systemd's word for that was lost or is none."""
        if self.stopped_on_request and not self.stopping:
            self.stopped_on_request = False

    def _fell(self) -> None:
        """It has ended by itself, or a start has failed: also one that was asked for after a stop."""
        if not self.stopping:
            self.stopped_on_request = False
