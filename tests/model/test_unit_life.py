"""Whether a server's unit was stopped on request: by systemd's own words, in the orders in which it says them."""

from __future__ import annotations

import pytest

from kvexporter.facts import (
    LinesSuppressed,
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
from kvexporter.unit_life import KEPT_RESTARTS, UnitLife

STARTED, STOPPING, STOPPED = UnitStarted(), UnitStopping(), UnitStopped()
EXITED, FAILED, RESTART = UnitExited("exited", "1"), UnitFailed("exit-code"), UnitRestartScheduled(1)


def life(*events: UnitEvent) -> UnitLife:
    told = UnitLife()
    for at, event in enumerate(events):
        told.observe(event, float(at))
    return told


@pytest.mark.parametrize(
    "events",
    [
        (STARTED, STOPPING),
        (STARTED, STOPPING, STOPPED),
        # It hung, and was killed when its time was up; or it crashed while it cleaned up.
        (STARTED, STOPPING, UnitExited("killed", "SIGKILL"), UnitFailed("timeout"), STOPPED),
        (STARTED, STOPPING, UnitExited("dumped", "SIGSEGV")),
        # systemctl stop while it waits for its next start.
        (STARTED, EXITED, FAILED, STOPPED),
        (STARTED, EXITED, FAILED, RESTART, STOPPED, STARTED, EXITED, FAILED, STOPPED),
        (STARTED, STOPPING, STOPPED, LinesSuppressed(3)),
    ],
)
def test_a_stop_that_was_asked_for_is_one(events: tuple[UnitEvent, ...]) -> None:
    assert life(*events).stopped_on_request is True


@pytest.mark.parametrize(
    "events",
    [
        (STARTED,),
        (STARTED, STOPPING, STOPPED, STARTED),
        (STARTED, EXITED, FAILED),
        (STARTED, UnitOutOfMemory(), UnitExited("killed", "SIGKILL"), UnitFailed("oom-kill")),
        # Each automatic restart is worded as a stop and a start.
        (STARTED, EXITED, FAILED, RESTART, STOPPED),
        (STARTED, EXITED, FAILED, RESTART, STOPPED, UnitFailed("start-limit-hit")),
        # A start that fails after a stop that was asked for: the command, what comes before it, what it needs.
        (STARTED, STOPPING, STOPPED, STARTED, UnitExited("exited", "127"), FAILED),
        (STARTED, STOPPING, STOPPED, FAILED),
        (STARTED, STOPPING, STOPPED, UnitNotStarted()),
        (STARTED, STOPPING, STOPPED, UnitOutOfMemory()),
        # A start that never comes to its end: an image is pulled, a disk hangs.
        (STARTED, STOPPING, STOPPED, UnitStarting()),
        (STARTED, EXITED, FAILED, RESTART, STOPPED, UnitStarting()),
        # Later it goes on as ever.
        (STARTED, STOPPING, STOPPED, STARTED, EXITED, FAILED, RESTART, STOPPED),
    ],
)
def test_a_crash_a_kill_and_a_failed_start_are_none(events: tuple[UnitEvent, ...]) -> None:
    assert life(*events).stopped_on_request is False


def test_nothing_is_known_before_systemd_has_said_something() -> None:
    assert life().stopped_on_request is None
    assert life(LinesSuppressed(3)).stopped_on_request is None


def test_times_of_restarts_exits_and_kills_are_kept_and_bounded() -> None:
    told = life(*(RESTART for _ in range(KEPT_RESTARTS + 5)), UnitExited("exited", "127"), UnitOutOfMemory())
    assert told.restarts_at == [float(at) for at in range(5, KEPT_RESTARTS + 5)]
    assert (told.exited_at, told.exit_code, told.oom_killed_at) == (KEPT_RESTARTS + 5, "127", KEPT_RESTARTS + 6)
