"""`python -m kvexporter.reading SOCKET MEMORY`: started by the daemon, with descriptors of one end of a socket pair and
of the memory that tells which log is looked at.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import signal
import socket
import sys

from kvexporter.reading.child import LogOverSocket, ReadingProcess
from kvexporter.reading.whereabouts import Whereabouts


def main() -> None:
    """Serve the daemon until it closes its end."""
    # Ctrl-C and systemd's signals go to both; this one ends when the daemon does.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _open_many_files()
    with socket.socket(fileno=int(sys.argv[1])) as sock:
        sock.setblocking(True)
        root = logging.getLogger()
        root.addHandler(LogOverSocket(sock))
        root.setLevel(logging.WARNING)
        logging.getLogger("kvexporter").setLevel(logging.INFO)
        ReadingProcess(sock, Whereabouts(int(sys.argv[2]))).run()


def _open_many_files() -> None:
    """Allow as many open files as may be: each journal's reader holds all files of its folder open, often a hundred."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    main()
