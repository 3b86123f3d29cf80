"""The process replaces itself by a new one of the same PID: a store that answered too late is used by a start alone.

A start reads each log from where the store ends, so its counts are those of an exporter that never stopped. Nothing is
asked of whoever started this process: it need not be systemd, and may be the first process of a container.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from typing import Literal

ANEW_SECONDS = 300.0
"""A process is at least so old before it begins anew: a disk that comes and goes must not have it do nothing else."""

_BEGUN = "KVEXPORTER_BEGUN_ANEW"
"""In the environment of a process that another one has begun for a late store."""

ENDING = frozenset({signal.SIGTERM, signal.SIGINT})

Decision = Literal["now", "later", "never"]


def decide(age: float, *, stdin: bool) -> Decision:
    """When a process of this age (seconds) begins anew for a store that can be used now.

    `stdin`: a log comes over standard input. What was read of it cannot be read again, nor is it in the store.
    """
    if stdin:
        return "never"
    return "now" if age >= ANEW_SECONDS else "later"


def begun_anew() -> bool:
    """Whether this process was begun for a store that had just been opened."""
    return _BEGUN in os.environ


def hold_signals() -> None:
    """Have signals wait for the new process: between two that heed them they would be lost, or SIGHUP would end it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING | {signal.SIGHUP})


def heed_signals(numbers: Iterable[signal.Signals] = ENDING | {signal.SIGHUP}) -> None:
    """Let signals come that waited; to be called once there is something that handles them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def begin_anew() -> None:
    """Replace this process by one with the same command line and environment; OSError if that is not possible.

    What is open here is closed by that, but standard input, output and errors. Environment and PID are what systemd
    gave, so it hears from the new process as it did from this one.
    """
    os.environ[_BEGUN] = "1"
    sys.stdout.flush()
    sys.stderr.flush()
    # The interpreter by its full path, by which it finds its virtual environment; what it was called may be less.
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the command that was given
