"""What must survive a restart, in one SQLite file: where each journal was read up to, and what was counted up to there.

Both are written in one transaction, so a line counts once whatever dies when. Nothing here knows what the counts mean.
A Store belongs to one thread.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path

from kvexporter.store_file import StoreFile
from kvexporter.store_limits import trim, trim_starts


@dataclass(frozen=True, slots=True)
class StoredFeed:
    """One journal as it was committed last."""

    position: str
    gaps: int
    servers: bytes
    updated: float = field(default=0.0, compare=False)
    """When it was committed."""


@dataclass(slots=True)
class Batch:
    """What is committed together: everything that the entries of one journal up to a position have changed."""

    key: str
    position: str
    gaps: int
    servers: bytes
    incidents: list[tuple[str, int, float, bytes]] = field(default_factory=list)
    """(server, number, end, JSON)."""
    requests: list[tuple[str, int, float, int]] = field(default_factory=list)
    """(server, number, end, tokens)."""


@dataclass(frozen=True, slots=True)
class StoredAlerts:
    """The alerts that were sent straight from here, as they are to be kept."""

    detail: bytes


@dataclass(frozen=True, slots=True)
class StoredStart:
    """One start of a server: when its process began, and what is kept of it."""

    server: str
    began: float
    detail: bytes


class Store:
    """The open file. Raises StoreError when it cannot be opened: locked by another exporter, or of a newer version."""

    def __init__(self, path: Path, wall_clock: float | None = None) -> None:
        self.path = path
        self._now = wall_clock
        self._file = StoreFile(path, self._time)
        self._database = self._file.database

    @property
    def set_aside(self) -> Path | None:
        """Where a file went that could not be read; counting then starts from what the journal still holds."""
        return self._file.set_aside

    @property
    def begun_anew(self) -> bool:
        """The file took the place of one that could not be read, now or at an earlier start."""
        return self._file.begun_anew

    def close(self) -> None:
        """Close the file and let go of the lock."""
        self._file.close()

    def feeds(self) -> dict[str, StoredFeed]:
        """All journals by key. Raises sqlite3.Error."""
        rows = self._database.execute("SELECT key, position, gaps, servers, updated FROM feed")
        return {key: StoredFeed(*row) for key, *row in rows}

    def commit(self, batch: Batch) -> None:
        """Write a batch whole or not at all. Raises sqlite3.Error."""
        now = self._time()
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute(
                "INSERT OR REPLACE INTO feed VALUES (?, ?, ?, ?, ?)",
                (batch.key, batch.position, batch.gaps, batch.servers, now),
            )
            if batch.incidents:
                self._database.executemany("INSERT OR REPLACE INTO incident VALUES (?, ?, ?, ?)", batch.incidents)
                trim(self._database, "incident", batch.incidents)
            if batch.requests:
                self._database.executemany("INSERT OR REPLACE INTO request VALUES (?, ?, ?, ?)", batch.requests)
                trim(self._database, "request", batch.requests)

    def add_start(self, start: StoredStart) -> None:
        """Write one start of a server; of each server's the latest are kept. Raises sqlite3.Error."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute(
                "INSERT OR REPLACE INTO start VALUES (?, ?, ?, ?)",
                (start.server, start.began, start.detail, self._time()),
            )
            trim_starts(self._database, start.server)

    def starts(self) -> dict[str, list[bytes]]:
        """The kept starts of each server, oldest first, as they were written. Raises sqlite3.Error."""
        return starts_by_server(self._database)

    def put_alerts(self, detail: bytes) -> None:
        """Write the alerts in place of those written before. Raises sqlite3.Error."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute("INSERT OR REPLACE INTO alerts VALUES (1, ?)", (detail,))

    def alerts(self) -> bytes | None:
        """The alerts as they were written last; None if none ever were. Raises sqlite3.Error."""
        row = self._database.execute("SELECT detail FROM alerts").fetchone()
        return None if row is None else bytes(row[0])

    def request_sizes(self, server: str) -> list[int]:
        """The kept sizes of a server's requests, oldest first. Raises sqlite3.Error."""
        rows = self._database.execute("SELECT tokens FROM request WHERE server = ? ORDER BY number", (server,))
        return [tokens for (tokens,) in rows]

    def incidents(self, server: str) -> list[bytes]:
        """The kept incidents of a server, oldest first, as they were committed. Raises sqlite3.Error."""
        rows = self._database.execute("SELECT detail FROM incident WHERE server = ? ORDER BY number", (server,))
        return [detail for (detail,) in rows]

    def _time(self) -> float:
        return time.time() if self._now is None else self._now


def starts_by_server(database: sqlite3.Connection) -> dict[str, list[bytes]]:
    """The kept starts of each server in an open file, oldest first. Raises sqlite3.Error."""
    found: dict[str, list[bytes]] = {}
    for server, detail in database.execute("SELECT server, detail FROM start ORDER BY server, began"):
        found.setdefault(server, []).append(detail)
    return found
