"""Where tests find things, and how they wait."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
RECORDINGS = ROOT / "tests" / "recordings"

T = TypeVar("T")


class SetupMissingError(RuntimeError):
    """Something that `./dev setup` installs is not there: the test fails, it is never skipped."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is missing: run ./dev setup")


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: str, probe: Callable[[], T | None], deadline: float = 30.0, interval: float = 0.05) -> T:
    """Call `probe` until it gives something true, and give that; AssertionError after `deadline` seconds."""
    end = time.monotonic() + deadline
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline:g} s for {what}")
        time.sleep(interval)
