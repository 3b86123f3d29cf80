"""What the daemon tells systemd: ready, reloading, stopping, alive (sd_notify's protocol, over its socket)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping


class ServiceManager:
    """systemd's notification socket; does nothing where there is none. Never raises: a lost message is no failure."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self.watchdog_seconds = _watchdog(environment)
        """How often systemd wants to hear from us; None if it does not."""

    @property
    def present(self) -> bool:
        """Whether systemd runs this process as a service that it is told about."""
        return self._address.startswith(("/", "@"))

    def ready(self, status: str) -> None:
        """The service answers."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """The configuration is being read again."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={text}")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The service is going down."""
        self._send("STOPPING=1")

    def _send(self, *lines: str) -> None:
        if not self.present:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
                notify.setblocking(False)
                notify.sendto("\n".join(lines).encode(), address)
        except OSError:
            pass


def _watchdog(environment: Mapping[str, str]) -> float | None:
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        interval = int(environment.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return interval / 1e6 if interval > 0 else None
