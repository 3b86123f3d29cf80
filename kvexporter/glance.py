"""A look at a file where no event loop runs yet, which a disk that hangs holds up for a moment only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

GLANCE_SECONDS = 2.0

_hanging: dict[Path, threading.Thread] = {}
"""Folder → a look at one of its files that has not come back: many files there cost one wait."""


def glance(path: Path, look: Callable[[], bool]) -> bool | None:
    """What `look` says of `path`, False if it raises OSError or ValueError; None if the disk does not answer."""
    hanging = _hanging.get(path.parent)
    if hanging is not None and hanging.is_alive():
        return None
    said: list[bool] = []

    def ask() -> None:
        try:
            said.append(look())
        except (OSError, ValueError):
            said.append(False)

    # A daemon thread: it must not keep the process from ending.
    thread = threading.Thread(target=ask, name="looking at a file", daemon=True)
    thread.start()
    thread.join(GLANCE_SECONDS)
    if said:
        _hanging.pop(path.parent, None)
        return said[0]
    _hanging[path.parent] = thread
    return None
