"""Signals from the start until the event loop takes them: told to end, the exporter ends; SIGHUP is kept for later.

By default the kernel drops SIGTERM for the first process of a container, and SIGHUP ends any other, which systemd takes
for a clean end and starts no other. Imported before everything else, so only light modules are imported here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import FrameType

_hang_ups: list[int] = []


def runs_exporter(arguments: Sequence[str]) -> bool:
    """Whether this command line is the command `run`, named or not; all others keep the usual signals."""
    named = without_command(arguments) or arguments[0] == "run"
    return named and "--config.check" not in arguments


def without_command(arguments: Sequence[str]) -> bool:
    """Whether a command line names no command, and asks for no help: it means `run`."""
    return not arguments or (arguments[0].startswith("-") and arguments[0] not in ("--help", "-h", "--version"))


def take_signals() -> None:
    """Have SIGTERM and SIGINT end the process at once with status 0, as later, and SIGHUP be noted.

    To be called on the main thread. The event loop's own handlers take the place of these one by one, without a moment
    in between.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    signal.signal(signal.SIGHUP, _note)
    # What came while a process before this one replaced itself waits since then.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))


def take_hang_up() -> bool:
    """Whether SIGHUP came since this was asked last: the configuration may have changed after it was read."""
    came = bool(_hang_ups)
    _hang_ups.clear()
    return came


def _end(_: int, __: FrameType | None) -> None:
    # Nothing has begun that would have to be ended, and an exception may be lost, as in an import that catches all.
    os._exit(0)


def _note(number: int, _: FrameType | None) -> None:
    _hang_ups.append(number)
