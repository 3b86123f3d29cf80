"""Free ports of 127.0.0.1."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

_TRIED = 50


class PortTakenError(Exception):
    """A port cannot be had; the text says which, and what to do."""


def need_port(port: int) -> None:
    """PortTakenError when something listens on this port already, or it may not be listened on."""
    with socket.socket() as probe:
        try:
            _bind(probe, port)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = "something listens on it already" if taken else str(error.strerror)
            raise PortTakenError(f"port {port} of 127.0.0.1: {why}; choose another with --port") from None


def free_ports(number: int, first: int = 0) -> list[int]:
    """So many ports that nothing listens on, the lowest from `first` on, or any (0)."""
    found: list[int] = []
    # All are held until the last is found, so that no two are the same.
    with ExitStack() as stack:
        for port in [*(range(first, min(first + _TRIED, 65536)) if first else ()), *([0] * number)]:
            if len(found) == number:
                break
            probe = stack.enter_context(socket.socket())
            try:
                _bind(probe, port)
            except OSError:
                continue
            found.append(int(probe.getsockname()[1]))
    if len(found) < number:
        raise PortTakenError("no port is free on 127.0.0.1")
    return found


def _bind(probe: socket.socket, port: int) -> None:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", port))
