"""Whether a server's unit was stopped on request: by systemd's own words, in the orders in which it says them."""

from __future__ import annotations

from itertools import combinations

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
from kvexporter.unit_life import KEPT_RESTARTS, LATE_SECONDS, LONGEST_STOP_SECONDS, UnitLife

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
        # systemctl stop after its next start was scheduled, before it came.
        (STARTED, EXITED, FAILED, RESTART, UnitStopped(restarting=False)),
        # The word before it was lost.
        (STARTED, STOPPED),
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
        # The word of it was lost.
        (STARTED, EXITED, FAILED, UnitStopped(restarting=True)),
        (STARTED, STOPPING, STOPPED, UnitFailed("start-limit-hit")),
        # A start that never comes to its end: an image is pulled, a disk hangs.
        (STARTED, STOPPING, STOPPED, UnitStarting()),
        (STARTED, EXITED, FAILED, RESTART, STOPPED, UnitStarting()),
        # Later it goes on as ever.
        (STARTED, STOPPING, STOPPED, STARTED, EXITED, FAILED, RESTART, STOPPED),
    ],
)
def test_a_crash_a_kill_and_a_failed_start_are_none(events: tuple[UnitEvent, ...]) -> None:
    assert life(*events).stopped_on_request is False


CRASHED = (EXITED, FAILED)
CRASHES = [CRASHED, (UnitOutOfMemory(), UnitExited("killed", "SIGKILL"), UnitFailed("oom-kill"))]


def some_of(events: tuple[UnitEvent, ...]) -> list[tuple[UnitEvent, ...]]:
    """With any of them lost."""
    return [some for count in range(len(events) + 1) for some in combinations(events, count)]


@pytest.mark.parametrize("crash", CRASHES)
@pytest.mark.parametrize("restart", [UnitStopped(restarting=False), UnitStopped(restarting=True), STOPPED])
def test_a_crash_after_a_stop_is_one_whichever_words_between_them_were_lost(
    restart: UnitStopped, crash: tuple[UnitEvent, ...]
) -> None:
    for told in some_of((STOPPING, restart, UnitStarting(), STARTED)):
        unit = life(STARTED, *told)
        for event in crash:
            unit.observe(event, LONGEST_STOP_SECONDS + 10)
        assert unit.stopped_on_request is False, told


def test_a_crash_loop_after_a_stop_is_one_whichever_words_before_it_were_lost() -> None:
    """However soon after the stop: what is stopped on request is not started anew by systemd itself."""
    for told in some_of((STOPPING, STOPPED, UnitStarting(), STARTED, EXITED, FAILED)):
        assert life(STARTED, *told, RESTART, STOPPED).stopped_on_request is False, told


def test_a_stop_is_one_whichever_words_of_it_but_the_last_were_lost() -> None:
    killed = UnitExited("killed", "SIGKILL"), UnitFailed("timeout")
    for told in some_of((STARTED, STOPPING, *killed)):
        assert life(*told, UnitStopped(restarting=False)).stopped_on_request is True, told
    for told in some_of((STARTED, *CRASHED, RESTART, UnitStopped(restarting=True), STOPPING, *killed)):
        assert life(*told, UnitStopped(restarting=False)).stopped_on_request is True, told


def test_a_stop_is_over_once_the_server_works_longer_than_any_stop_takes() -> None:
    ending, stopped = life(STARTED, STOPPING), life(STARTED, STOPPING, STOPPED)
    ending.works(1 + LONGEST_STOP_SECONDS)
    stopped.works(2 + LATE_SECONDS)  # a line of before that was stored late
    assert (ending.stopped_on_request, stopped.stopped_on_request) == (True, True)
    ending.works(1.1 + LONGEST_STOP_SECONDS)
    stopped.works(2.1 + LATE_SECONDS)
    assert (ending.stopped_on_request, stopped.stopped_on_request) == (False, False)
    # It was only given longer than others to end.
    ending.observe(UnitStopped(restarting=False), 600)
    assert ending.stopped_on_request


def test_a_stop_is_over_once_another_process_runs() -> None:
    for unit in life(STARTED, STOPPING), life(STARTED, STOPPING, STOPPED):
        unit.process_started(-50.0)  # the one that is being stopped
        assert unit.stopped_on_request
        unit.process_started(10.0)
        assert not unit.stopped_on_request


def test_a_stop_told_under_a_clock_that_was_set_back_is_over_as_soon_as_any_other() -> None:
    unit = life(STARTED)
    unit.observe(STOPPING, 90_000.0)
    unit.clock_set_back(10.0)
    unit.works(20.0 + LONGEST_STOP_SECONDS)
    assert not unit.stopped_on_request


def test_nothing_is_known_before_systemd_has_said_something() -> None:
    assert life().stopped_on_request is None
    assert life(LinesSuppressed(3)).stopped_on_request is None


def test_times_of_restarts_exits_and_kills_are_kept_and_bounded() -> None:
    told = life(*(RESTART for _ in range(KEPT_RESTARTS + 5)), UnitExited("exited", "127"), UnitOutOfMemory())
    assert told.restarts_at == [float(at) for at in range(5, KEPT_RESTARTS + 5)]
    assert (told.exited_at, told.exit_code, told.oom_killed_at) == (KEPT_RESTARTS + 5, "127", KEPT_RESTARTS + 6)
