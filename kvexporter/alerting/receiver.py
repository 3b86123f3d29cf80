"""One receiver's own loop: it posts what is due, tries again what failed, and keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvexporter.alerting.register import Alert, Key, Register

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""What is due by time alone is looked for so often; everything new is told at once."""

IDLE_SECONDS = 600.0

BACK_OFF_SECONDS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Pauses after the first, second, … failure in a row."""

MOST_AT_ONCE = 100
"""Alerts in one request."""

IsDue = Callable[[Alert, str, float | None, float], bool]


class Posting(Protocol):
    """Something that posts."""

    async def post(self, body: bytes) -> str | None:
        """Post once; None if it was taken, else why not."""


@dataclass(slots=True)
class Tally:
    """What became of a receiver's alerts and posts."""

    sent: int = 0
    """Alerts that were taken, each time they were posted."""
    failures: int = 0
    """Posts that failed."""
    problem: str | None = None
    """Why the last post failed; None if it did not."""
    seconds: float = 0.0
    """How long the last post took."""


@dataclass(slots=True)
class Receiver:
    """One Alertmanager or webhook. `clock` gives unix seconds; `on_told` is called when it was told something."""

    key: str
    """Kind and name, as alerts keep it in `told`."""
    poster: Posting
    is_due: IsDue
    body: Callable[[Sequence[Alert], float], bytes]
    register: Register
    on_told: Callable[[], None]
    clock: Callable[[], float] = time.time
    tally: Tally = field(default_factory=Tally)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    _posted: dict[Key, float] = field(default_factory=dict)
    _failed: int = 0

    async def run(self) -> None:
        """Post what is due, for ever."""
        while True:
            self.wake.clear()
            pause = LOOK_SECONDS
            try:
                pause = await self.round()
            except Exception:
                log.exception("%s: unexpected error; going on", self.key)
            if self._failed:
                await asyncio.sleep(pause)  # news do not shorten it: they are told with the next attempt
                continue
            try:
                async with asyncio.timeout(pause):
                    await self.wake.wait()
            except TimeoutError:
                pass

    async def round(self) -> float:
        """Post once if something is due; seconds to wait for the next round."""
        at = self.clock()
        alerts = self.register.alerts
        due = [alert for alert in alerts if self.is_due(alert, self.key, self._posted.get(alert.key), at)]
        if not alerts:
            self._posted.clear()
            return IDLE_SECONDS
        if not due:
            self._posted = {key: when for key, when in self._posted.items() if key in {one.key for one in alerts}}
            return LOOK_SECONDS
        # Beginnings before ends, and what Alertmanager only has to hear again last.
        due.sort(key=lambda alert: (alert.told.get(self.key) == alert.state, alert.ended is not None))
        batch = due[:MOST_AT_ONCE]
        states = [(alert.key, alert.id, alert.state) for alert in batch]
        began = time.perf_counter()
        problem = await self.poster.post(self.body(batch, at))
        self.tally.seconds = time.perf_counter() - began
        if problem is not None:
            self._note_failure(problem)
            return BACK_OFF_SECONDS[min(self._failed, len(BACK_OFF_SECONDS)) - 1]
        self._note_success(len(batch))
        news = False
        for alert, (key, id_, state) in zip(batch, states, strict=True):
            self._posted[key] = at
            if alert.id == id_ and alert.told.get(self.key) != state:
                alert.told[self.key] = state
                news = True
        if news:
            self.on_told()
        return 0.0 if len(due) > len(batch) else LOOK_SECONDS

    def _note_failure(self, problem: str) -> None:
        self._failed += 1
        self.tally.failures += 1
        if problem != self.tally.problem:
            log.warning("%s cannot be told of alerts: %s; it is tried again", self.key, problem)
        self.tally.problem = problem

    def _note_success(self, alerts: int) -> None:
        if self.tally.problem is not None:
            log.info("%s is told of alerts again", self.key)
        self._failed = 0
        self.tally.sent += alerts
        self.tally.problem = None


def receiver_key(kind: str, name: str) -> str:
    """Under which alerts keep what a receiver knows, and by which it is named in the log."""
    return f"{kind} {name}"
