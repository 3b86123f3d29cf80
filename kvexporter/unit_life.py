"""What systemd has told of a server's unit: whether it was stopped on request, its latest restarts, exits and kills.

Facts and their times go in; no clock, no I/O. It is plain data, since a server that was stopped stays so over a restart
of the exporter.
"""

from __future__ import annotations

import math
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

LONGEST_STOP_SECONDS = 100.0
"""A stop takes no longer: systemd's default is 90 s (TimeoutStopSec=), then it kills. Where a unit is given longer, its
last word, that it is stopped, still tells."""
LATE_SECONDS = 5.0
"""What a server says may be heard so long after systemd has said that it is stopped."""
START_SECONDS = 1.0
"""A process that started so long after a word of the stop is not the one that is being stopped."""


@dataclass(slots=True)
class UnitLife:
    """One server's unit. Times are unix seconds; None: systemd has told nothing of that kind.

    Any word of systemd's may be missing (dropped for its rate, vacuumed, or in a gap), so a stop ends with whatever
    shows that it is over: a page that is lost for a word is worse than one too many.
    """

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
    stop_told_at: float | None = None
    """When systemd spoke last of a stop: that it begins, or that it is done."""

    def observe(self, event: UnitEvent, at: float) -> None:
        """Take what systemd says of the unit."""
        match event:
            case UnitStarting() | UnitStarted() | UnitNotStarted() | UnitFailed("start-limit-hit"):
                self._runs()  # or was to run: a start that fails is no stop
            case UnitStopping():
                self.stopped_on_request = self.stopping = True
                self.stop_told_at = at
            case UnitStopped(restarting):
                if restarting is None:
                    # A unit that waits for its restart, or whose process has ended, is stopped without the word before.
                    restarting = self.restarting and not self.stopping
                self.stopped_on_request = not restarting
                self.stopping = self.restarting = False
                self.stop_told_at = at
            case UnitRestartScheduled():
                self._runs()  # a unit that is being stopped is not started anew
                self.restarting = True
                self.restarts_at.append(at)
                del self.restarts_at[:-KEPT_RESTARTS]
            case UnitExited(_, status):
                self.exited_at, self.exit_code = at, status
                self._fell(at)
            case UnitFailed():
                self._fell(at)
            case UnitOutOfMemory():
                self.oom_killed_at = at
                self._fell(at)
            case _:
                pass

    def works(self, at: float) -> None:
        """The server answers or logs work at `at`: long enough after a stop it has been started since, though systemd's
        word for that was lost or is none. While it is being stopped it may still end what it does.
        """
        if self.stopped_on_request and self._since_stop(at) > (LONGEST_STOP_SECONDS if self.stopping else LATE_SECONDS):
            self._runs()

    def process_started(self, start: float) -> None:
        """The server's process is one that started then."""
        if self.stopped_on_request and self._since_stop(start) > START_SECONDS:
            self._runs()

    def clock_set_back(self, at: float) -> None:
        """It is `at`: a stop told of a later time was told under the wrong clock."""
        if self.stop_told_at is not None:
            self.stop_told_at = min(self.stop_told_at, at)

    def _since_stop(self, at: float) -> float:
        return at - self.stop_told_at if self.stop_told_at is not None else math.inf

    def _runs(self) -> None:
        self.stopped_on_request = self.stopping = self.restarting = False

    def _fell(self, at: float) -> None:
        """It has ended by itself, or a start has failed: also one that was asked for after a stop."""
        if not self.stopping or self._since_stop(at) > LONGEST_STOP_SECONDS:
            self.stopped_on_request = self.stopping = False
