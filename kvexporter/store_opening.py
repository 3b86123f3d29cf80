"""Opens the store on the keeper's thread, as often as it takes, and tells each outcome.

A full disk may have room again in a minute, a network's disk may come back in an hour. Only a store that must not be
used is another matter, and that is for who is told to decide.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvexporter.store import Store, StoredFeed
from kvexporter.store_file import StoreError

log = logging.getLogger(__name__)

OPEN_ATTEMPTS = 12
"""So many come soon one after the other; while they do, journals wait for the store."""
OPEN_PAUSE = 5.0
LATER_PAUSE = 60.0
"""Between two attempts after these."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What an open store holds."""

    feeds: dict[str, StoredFeed]
    starts: dict[str, bytes]
    """Each server's latest start."""
    alerts: bytes | None
    begun_anew: bool
    """It took the place of one that could not be read."""


@dataclass(frozen=True, slots=True)
class NotOpened:
    """Why the store could not be opened, and whether that is tried again soon."""

    error: StoreError
    soon: bool


Opening = Opened | NotOpened


def open_store(path: Path, tell: Callable[[Opening], None], stop: threading.Event) -> Store | None:
    """The open store, once it can be opened; None after `stop`. A disk that hangs makes it wait."""
    attempt = 0
    while True:
        attempt += 1
        soon = attempt < OPEN_ATTEMPTS and _exists(path)
        store = None
        try:
            store = Store(path)
            starts = {server: details[-1] for server, details in store.starts().items()}
            tell(Opened(store.feeds(), starts, store.alerts(), store.begun_anew))
            return store
        except StoreError as error:
            tell(NotOpened(error, soon))
        except (sqlite3.Error, OSError) as error:
            tell(NotOpened(StoreError(f"{path}: {error}: choose another place with --storage.path"), soon))
        if store is not None:
            close_store(store)
        if stop.wait(OPEN_PAUSE if soon else LATER_PAUSE):
            return None


def close_store(store: Store) -> None:
    """Close it; what goes wrong then is only said."""
    try:
        store.close()
    except sqlite3.Error as error:
        log.warning("%s: %s", store.path, error)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # what is in the way cannot be known, and does not go away in a moment
