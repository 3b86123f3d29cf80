"""Reads a store beside a running exporter, and without changing anything: for the commands.

All of it raises StoreError where there is no store that can be read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvexporter.store import starts_by_server
from kvexporter.store_file import BUSY_SECONDS, StoreError


@dataclass(frozen=True, slots=True)
class Kept:
    """What a store tells of all servers."""

    journals: tuple[bytes, ...]
    """JSON of each journal: server → what was counted."""
    requests: dict[str, list[int]]
    """Server → sizes of its latest requests in tokens, oldest first."""
    incidents: dict[str, list[bytes]]
    """Server → JSON of its latest incidents, oldest first."""


def read_kept(path: Path) -> Kept:
    """All that is kept of the servers' logs, as of one moment."""
    with _read_only(path) as database:
        database.execute("BEGIN")
        requests: dict[str, list[int]] = {}
        for server, tokens in database.execute("SELECT server, tokens FROM request ORDER BY server, number"):
            requests.setdefault(server, []).append(tokens)
        incidents: dict[str, list[bytes]] = {}
        for server, detail in database.execute("SELECT server, detail FROM incident ORDER BY server, number"):
            incidents.setdefault(server, []).append(detail)
        journals = tuple(servers for (servers,) in database.execute("SELECT servers FROM feed ORDER BY updated"))
        return Kept(journals, requests, incidents)


def read_starts(path: Path) -> dict[str, list[bytes]]:
    """The kept starts of each server, oldest first."""
    with _read_only(path) as database:
        version = database.execute("PRAGMA user_version").fetchone()[0]
        return starts_by_server(database) if version >= 2 else {}


def read_gaps(path: Path) -> dict[str, int]:
    """Journal → times that its entries were gone before they were read."""
    with _read_only(path) as database:
        return dict(database.execute("SELECT key, gaps FROM feed"))


@contextmanager
def _read_only(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        if path.is_dir():
            raise StoreError(f"{path}: expected a file, found a folder")
        path.stat()
        # Without a log beside it nobody writes, and opening it in the usual way would make one.
        quiet = not path.with_name(path.name + "-wal").exists()
        uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if quiet else ''}"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as database:
            yield database
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None
    except sqlite3.Error as error:
        if path.is_dir() or "no such table" in str(error):
            raise StoreError(f"{path}: this is no store of kvexporter's") from None
        raise StoreError(f"{path}: {error}") from None
