from __future__ import annotations

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
from kvexporter.sources.systemd_messages import unit_event

UNIT = "llama-server.service"
# From systemd's sd-messages.h.
STARTED = "39f53479d3a045ac8e11786248231fbf"
STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
STOPPING = "de5b426a63be47a7b6ac3eaac82e2f6f"
NOT_STARTED = "be02cf6855d2428ba40df7e9d022f03d"
STOPPED = "9d1aaa27d60140bd96365438aad20286"
EXIT = "98e322203f7a4ed290d09fe03c09fe15"
FAILURE = "d9b373ed55a64feb8242e02dbe79a49c"
RESTART = "5eb03494b6584870a536b337290809b3"
OOM = "fe6faa94e7774663a0da52717891d8ef"
OOMD = "d989611b15e44c9dbf31e3c81256e4ed"
DROPPED = "a596d6fe7bfa4994828e72309e95d61e"


def event_of(unit: str | None = UNIT, **fields: str) -> UnitEvent | None:
    return unit_event(lambda name: fields[name].encode() if name in fields else None, unit)


def from_pid_1(message_id: str, **fields: str) -> UnitEvent | None:
    return event_of(**{"_PID": "1", "UNIT": UNIT, "MESSAGE_ID": message_id, **fields})


def test_each_message_of_systemd_becomes_its_event() -> None:
    assert from_pid_1(STARTED) == UnitStarted()
    assert from_pid_1(STOPPING) == UnitStopping()
    assert from_pid_1(STARTING) == UnitStarting()
    assert from_pid_1(STOPPED) == UnitStopped(None)
    assert from_pid_1(STOPPED, JOB_TYPE="stop") == UnitStopped(restarting=False)
    assert from_pid_1(STOPPED, JOB_TYPE="restart") == UnitStopped(restarting=True)
    assert from_pid_1(NOT_STARTED, JOB_RESULT="dependency") == UnitNotStarted()
    assert from_pid_1(EXIT, EXIT_CODE="exited", EXIT_STATUS="127", COMMAND="ExecStart") == UnitExited("exited", "127")
    assert from_pid_1(FAILURE, UNIT_RESULT="oom-kill") == UnitFailed("oom-kill")
    assert from_pid_1(RESTART, N_RESTARTS="24") == UnitRestartScheduled(24)
    assert from_pid_1(OOM) == UnitOutOfMemory()
    assert from_pid_1(OOMD) == UnitOutOfMemory()


def test_a_start_that_failed_by_itself_is_told_once_with_its_result() -> None:
    assert from_pid_1(NOT_STARTED, JOB_RESULT="failed") is None
    assert from_pid_1(FAILURE, UNIT_RESULT="exit-code") == UnitFailed("exit-code")


def test_a_killing_signal_is_named() -> None:
    assert from_pid_1(EXIT, EXIT_CODE="killed", EXIT_STATUS="9") == UnitExited("killed", "SIGKILL")
    assert from_pid_1(EXIT, EXIT_CODE="dumped", EXIT_STATUS="11") == UnitExited("dumped", "SIGSEGV")
    assert from_pid_1(EXIT, EXIT_CODE="killed", EXIT_STATUS="40") == UnitExited("killed", "40")


def test_the_end_of_another_command_of_the_unit_is_not_the_servers() -> None:
    assert from_pid_1(EXIT, EXIT_CODE="exited", EXIT_STATUS="1", COMMAND="ExecStartPre") is None


def test_a_number_that_cannot_be_read_is_unknown() -> None:
    assert from_pid_1(RESTART) == UnitRestartScheduled(None)
    assert from_pid_1(RESTART, N_RESTARTS="-1") == UnitRestartScheduled(None)
    assert from_pid_1(RESTART, N_RESTARTS="9" * 400) == UnitRestartScheduled(None)


def test_only_pid_1_is_believed_about_a_system_unit() -> None:
    assert event_of(_PID="4242", UNIT=UNIT, MESSAGE_ID=OOM, _COMM="llama-server") is None
    assert event_of(_PID="4242", UNIT=UNIT, MESSAGE_ID=OOM, _COMM="systemd") is None


def test_messages_about_another_unit_are_not_this_ones() -> None:
    assert event_of(_PID="1", UNIT="other.service", MESSAGE_ID=STARTED) is None


def test_without_a_unit_every_units_messages_count() -> None:
    assert event_of(None, _PID="1", UNIT="other.service", MESSAGE_ID=STARTED) == UnitStarted()
    assert event_of(None, _PID="1", MESSAGE_ID=STARTED) is None


def test_a_users_own_systemd_is_believed_about_its_units() -> None:
    assert event_of(_PID="900", _COMM="systemd", USER_UNIT=UNIT, MESSAGE_ID=STARTED) == UnitStarted()


def test_dropped_lines_are_believed_from_journald_only() -> None:
    fields = {"MESSAGE_ID": DROPPED, "N_DROPPED": "2541", "OBJECT_SYSTEMD_UNIT": UNIT}
    assert event_of(_TRANSPORT="driver", **fields) == LinesSuppressed(2541)
    assert event_of(_TRANSPORT="journal", **fields) is None
    assert event_of("other.service", _TRANSPORT="driver", **fields) is None


def test_messages_without_an_id_or_with_another_say_nothing() -> None:
    assert event_of(_PID="1", UNIT=UNIT) is None
    assert from_pid_1("d34d037fff1847e6ae669a370e694725") is None
