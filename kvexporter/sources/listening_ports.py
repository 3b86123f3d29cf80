"""TCP ports that a process listens on, from its descriptors and the kernel's socket table."""

from __future__ import annotations

import os
import re
from pathlib import Path

_SOCKET = re.compile(r"socket:\[(\d+)\]")
_LISTEN = "0A"


def listening_ports(folder: Path) -> tuple[int, ...]:
    """The ports, sorted; none where /proc/PID/fd may not be read. `folder` is the process's in /proc. Never raises."""
    sockets = _sockets(folder / "fd")
    if not sockets:
        return ()
    ports: set[int] = set()
    for table in ("tcp", "tcp6"):
        try:
            text = (folder / "net" / table).read_text("ascii", "replace")
        except OSError:
            continue
        for line in text.splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTEN and words[9] in sockets:
                try:
                    ports.add(int(words[1].rpartition(":")[2], 16))
                except ValueError:
                    continue
    return tuple(sorted(ports))


def _sockets(folder: Path) -> set[str]:
    found = set()
    try:
        with os.scandir(folder) as descriptors:
            for descriptor in descriptors:
                try:
                    match = _SOCKET.fullmatch(os.readlink(descriptor.path))  # noqa: PTH115 - thousands of them
                except OSError:
                    continue  # closed since it was listed
                if match is not None:
                    found.add(match[1])
    except OSError:
        pass
    return found
