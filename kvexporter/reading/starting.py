"""How the reading process is started, and in words how it ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import kvexporter
from kvexporter.reading.whereabouts import Whereabouts


def start_process(sock: socket.socket, whereabouts: Whereabouts, *, stdin: bool) -> subprocess.Popen[bytes]:
    """Start it with its end of the socket. `stdin`: it gets the exporter's. Raises OSError."""
    descriptors = sock.fileno(), whereabouts.descriptor
    return subprocess.Popen(
        # -P: the folder that the daemon was started in is nobody's library.
        [sys.executable, "-P", "-m", "kvexporter.reading", *map(str, descriptors)],
        pass_fds=descriptors,
        stdin=None if stdin else subprocess.DEVNULL,
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    """The child's: it is this very program, wherever that is, and nobody that systemd should hear of."""
    environment = {k: v for k, v in os.environ.items() if k not in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")}
    program = str(Path(kvexporter.__file__).parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (program, environment.get("PYTHONPATH"))))
    return environment


def how_it_ended(status: int | None) -> str:
    """What became of it. None: it has not ended, but says nothing more."""
    if status is None:
        return "closed its end"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
