"""systemd's and journald's own messages about a unit, as facts.

Recognised by MESSAGE_ID, never by the text alone, and believed only from PID 1 (the user's systemd for user units) or
from journald itself: any process may send `UNIT=` and `MESSAGE_ID=`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

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

FieldGetter = Callable[[str], bytes | None]
"""An entry's field, None where it has none."""

STARTING = b"7d4958e842da4a758f6c1cdc7b36dcc5"
STARTED = b"39f53479d3a045ac8e11786248231fbf"
STOPPING = b"de5b426a63be47a7b6ac3eaac82e2f6f"
STOPPED = b"9d1aaa27d60140bd96365438aad20286"
PROCESS_EXIT = b"98e322203f7a4ed290d09fe03c09fe15"
FAILURE_RESULT = b"d9b373ed55a64feb8242e02dbe79a49c"
NOT_STARTED = b"be02cf6855d2428ba40df7e9d022f03d"
RESTART_SCHEDULED = b"5eb03494b6584870a536b337290809b3"
OUT_OF_MEMORY = b"fe6faa94e7774663a0da52717891d8ef"
OOMD_KILL = b"d989611b15e44c9dbf31e3c81256e4ed"
_RESTARTS = (b"restart", b"try-restart")
"""Jobs that stop a unit to start it anew."""
SUPPRESSED = b"a596d6fe7bfa4994828e72309e95d61e"


def message_starts(unit: str | None) -> tuple[bytes, ...]:
    """How the texts of these messages begin: a cheap first test, so that MESSAGE_ID is not read for every line.

    Most begin with the unit's name; where no one unit is followed, the test is wider.
    """
    starts: tuple[bytes, ...] = (
        b"Starting ",
        b"Started ",
        b"Finished ",
        b"Stopping ",
        b"Stopped ",
        b"Dependency failed ",
        b"Suppressed ",
    )
    return starts if unit is None else (*starts, unit.encode() + b": ")


def may_be_about_any_unit(message: bytes) -> bool:
    """The same test for the messages that begin with a unit's name, when that name is not known."""
    head = message[:300]
    return b".service: " in head or b".scope: " in head


def unit_event(get: FieldGetter, unit: str | None) -> UnitEvent | None:
    """What systemd or journald says about `unit` (None: about any) in this entry; None when it is neither of them.

    A number that cannot be read makes the event what it is without it, or None.
    """
    message_id = get("MESSAGE_ID")
    if message_id is None:
        return None
    if message_id == SUPPRESSED:
        return _suppressed(get, unit)
    if not _from_service_manager(get, unit):
        return None
    if message_id == STARTING:
        return UnitStarting()
    if message_id == STARTED:
        return UnitStarted()
    if message_id == STOPPING:
        return UnitStopping()
    if message_id == STOPPED:
        job = get("JOB_TYPE")
        return UnitStopped(None if job is None else job in _RESTARTS)
    if message_id == NOT_STARTED:
        # Any other reason has a message of its own, with the unit's result.
        return UnitNotStarted() if get("JOB_RESULT") == b"dependency" else None
    if message_id == PROCESS_EXIT:
        return _exited(get)
    if message_id == FAILURE_RESULT:
        return UnitFailed(_text(get("UNIT_RESULT")) or "unknown")
    if message_id == RESTART_SCHEDULED:
        return UnitRestartScheduled(_number(get("N_RESTARTS")))
    if message_id in (OUT_OF_MEMORY, OOMD_KILL):
        return UnitOutOfMemory()
    return None


def _suppressed(get: FieldGetter, unit: str | None) -> LinesSuppressed | None:
    # Only journald itself has the transport "driver"; OBJECT_ fields are accepted from root alone.
    if get("_TRANSPORT") != b"driver":
        return None
    about = _text(get("OBJECT_SYSTEMD_USER_UNIT")), _text(get("OBJECT_SYSTEMD_UNIT"))
    if unit is not None and unit not in about:
        return None
    dropped = _number(get("N_DROPPED"))
    return None if dropped is None else LinesSuppressed(dropped)


def _from_service_manager(get: FieldGetter, unit: str | None) -> bool:
    if get("_PID") == b"1":
        about = get("UNIT")
    else:
        # A user's systemd is an ordinary process of that user, and has no more say than over that user's units.
        about = get("USER_UNIT")
        if get("_COMM") != b"systemd":
            return False
    return about is not None and (unit is None or _text(about) == unit)


def _exited(get: FieldGetter) -> UnitExited | None:
    if get("COMMAND") not in (None, b"ExecStart"):
        return None  # an ExecStartPre= or ExecStop= process, not the server
    code = _text(get("EXIT_CODE")) or "unknown"
    status = _text(get("EXIT_STATUS")) or "unknown"
    if code in ("killed", "dumped"):
        number = _number(status.encode())
        # A real-time signal has no name: its number says as much.
        status = next((name.name for name in signal.Signals if name == number), status)
    return UnitExited(code, status)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")[:256]


def _number(value: bytes | None) -> int | None:
    if value is None or len(value) > 12 or not value.isdigit():
        return None
    return int(value)
