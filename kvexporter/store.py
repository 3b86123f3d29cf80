"""What must survive a restart, in one SQLite file: where each journal was read up to, and what was counted up to there.

Both are written in one transaction, so a line counts once whatever dies when. Nothing here knows what the counts mean.
A Store belongs to one thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

log = logging.getLogger(__name__)

SCHEMA_VERSION = 3

KEPT_REQUESTS = 10_000
"""Sizes kept by server, for exact percentiles."""
KEPT_INCIDENTS = 1_000
"""Incidents kept by server."""
KEPT_STARTS = 10
"""Starts kept by server."""
KEPT_SECONDS = 90 * 86_400
"""A journal not read for so long is forgotten, with its servers."""

_BUSY_SECONDS = 2.0

_SCHEMA = """
CREATE TABLE feed (
  key TEXT PRIMARY KEY,          -- which journal entries
  position TEXT NOT NULL,        -- the last one that was counted
  gaps INTEGER NOT NULL,         -- times that entries were gone before they were read
  servers BLOB NOT NULL,         -- JSON: server name to what was counted
  updated REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE incident (
  server TEXT NOT NULL,
  number INTEGER NOT NULL,       -- counts up from 1
  ended REAL NOT NULL,
  detail BLOB NOT NULL,          -- JSON
  PRIMARY KEY (server, number)
) WITHOUT ROWID;
CREATE TABLE origin (
  replaced REAL NOT NULL         -- when this file took the place of one that could not be read; else no row
);
CREATE TABLE request (
  server TEXT NOT NULL,
  number INTEGER NOT NULL,       -- counts up from 1
  ended REAL NOT NULL,
  tokens INTEGER NOT NULL,       -- prompt and answer
  PRIMARY KEY (server, number)
) WITHOUT ROWID;
"""
_START_TABLE = """
CREATE TABLE start (
  server TEXT NOT NULL,
  began REAL NOT NULL,           -- when the process started
  detail BLOB NOT NULL,          -- JSON
  ended REAL NOT NULL,           -- when it was written
  PRIMARY KEY (server, began)
) WITHOUT ROWID;
"""
"""Since version 2."""
_ALERTS_TABLE = """
CREATE TABLE alerts (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  detail BLOB NOT NULL           -- JSON: the alerts that were sent straight from here, and who was told of them
);
"""
"""Since version 3."""
_SCHEMA += _START_TABLE + _ALERTS_TABLE
_MIGRATIONS = {1: _START_TABLE + _ALERTS_TABLE, 2: _ALERTS_TABLE}
"""Version of a file → what it lacks."""


class StoreError(Exception):
    """The store cannot be used; the text says why and what to do. `final`: trying again will not help."""

    def __init__(self, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


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
        self.set_aside: Path | None = None
        """Where a file went that could not be read; counting then starts from what the journal still holds."""
        self.begun_anew = False
        """This file took the place of one that could not be read, now or at an earlier start."""
        self._now = wall_clock
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _lock(path.with_name(path.name + ".lock"))
            try:
                self._database = self._open()
            except BaseException:
                self._lock.close()
                raise
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}: choose another place with --storage.path") from None

    def close(self) -> None:
        """Close the file and let go of the lock."""
        try:
            self._database.close()
        finally:
            self._lock.close()

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
                self._trim("incident", batch.incidents, KEPT_INCIDENTS)
            if batch.requests:
                self._database.executemany("INSERT OR REPLACE INTO request VALUES (?, ?, ?, ?)", batch.requests)
                self._trim("request", batch.requests, KEPT_REQUESTS)

    def add_start(self, start: StoredStart) -> None:
        """Write one start of a server; of each server's the latest are kept. Raises sqlite3.Error."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute(
                "INSERT OR REPLACE INTO start VALUES (?, ?, ?, ?)",
                (start.server, start.began, start.detail, self._time()),
            )
            self._database.execute(
                "DELETE FROM start WHERE server = ? AND began NOT IN "
                "(SELECT began FROM start WHERE server = ? ORDER BY began DESC LIMIT ?)",
                (start.server, start.server, KEPT_STARTS),
            )

    def starts(self) -> dict[str, list[bytes]]:
        """The kept starts of each server, oldest first, as they were written. Raises sqlite3.Error."""
        return _starts(self._database)

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

    def _trim(self, table: str, rows: Iterable[tuple[str, int, object, object]], kept: int) -> None:
        newest: Mapping[str, int] = {server: number for server, number, _, _ in rows}
        for server, number in newest.items():
            # Above it: numbers of an earlier count that was begun anew.
            self._database.execute(
                f"DELETE FROM {table} WHERE server = ? AND (number <= ? OR number > ?)",  # noqa: S608
                (server, number - kept, number),
            )

    def _open(self) -> sqlite3.Connection:
        try:
            return self._prepared()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                return self._without_shared_memory(error)
            self._put_aside(error)
            return self._prepared()

    def _without_shared_memory(self, reason: Exception) -> sqlite3.Connection:
        """Open it where there is no room for the -shm file: on a full disk what was counted is still known."""
        try:
            return self._prepared(shared=False)
        except sqlite3.DatabaseError:
            raise StoreError(f"{self.path}: {reason}: choose another place with --storage.path") from None

    def _prepared(self, *, shared: bool = True) -> sqlite3.Connection:
        _make_private(self.path)  # the -wal and -shm files get its mode
        database = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            if not shared:
                database.execute("PRAGMA locking_mode = EXCLUSIVE")
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path}: written by a newer kvexporter (format {version}, this one knows {SCHEMA_VERSION}): "
                    "install that version again, or choose another place with --storage.path",
                    final=True,
                )
            # In the write-ahead log a process that dies in the middle of a commit has committed nothing.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            if version == 0:
                database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            elif version < SCHEMA_VERSION:
                lacking = _MIGRATIONS[version]
                database.executescript(f"BEGIN; {lacking} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            if self.set_aside is not None:
                database.execute("INSERT INTO origin VALUES (?)", (self._time(),))
            if (problem := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(problem)
            self.begun_anew = database.execute("SELECT count(*) FROM origin").fetchone()[0] > 0
            with contextlib.suppress(sqlite3.OperationalError):  # a full disk: another time
                self._forget_old(database)
        except BaseException:
            database.close()
            raise
        return database

    def _forget_old(self, database: sqlite3.Connection) -> None:
        database.execute("DELETE FROM feed WHERE updated < ?", (self._time() - KEPT_SECONDS,))
        for table in ("incident", "request", "start"):
            database.execute(
                f"DELETE FROM {table} WHERE server IN (SELECT server FROM {table} GROUP BY server "  # noqa: S608
                "HAVING max(ended) < ?)",
                (self._time() - KEPT_SECONDS,),
            )

    def _put_aside(self, error: Exception) -> None:
        """Keep a file that cannot be read, under a new name."""
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._time()))
        self.set_aside = self.path.with_name(f"{self.path.name}.corrupt-{stamp}")
        number = 1
        while self.set_aside.exists():
            number += 1
            self.set_aside = self.path.with_name(f"{self.path.name}.corrupt-{stamp}-{number}")
        self.path.rename(self.set_aside)
        for ending in ("-wal", "-shm"):
            beside = self.path.with_name(self.path.name + ending)
            if beside.exists():
                beside.rename(self.set_aside.with_name(self.set_aside.name + ending))
        log.error(
            "%s cannot be read (%s): it is kept as %s, and counting starts from what the journal still holds",
            self.path,
            error,
            self.set_aside.name,
        )

    def _time(self) -> float:
        return time.time() if self._now is None else self._now


def is_damage(error: Exception) -> bool:
    """Whether the file itself is broken, and not the disk full or the file in use."""
    return isinstance(error, sqlite3.DatabaseError) and (
        not isinstance(error, sqlite3.OperationalError | sqlite3.IntegrityError | sqlite3.ProgrammingError)
        or "malformed" in str(error)
    )


def read_starts(path: Path) -> dict[str, list[bytes]]:
    """The kept starts of each server, oldest first, read beside a running exporter and without changing anything.

    Raises StoreError where there is no store that can be read.
    """
    with _read_only(path) as database:
        version = database.execute("PRAGMA user_version").fetchone()[0]
        return _starts(database) if version >= 2 else {}


def read_gaps(path: Path) -> dict[str, int]:
    """Journal → times that its entries were gone before they were read; as `read_starts` in all else."""
    with _read_only(path) as database:
        return dict(database.execute("SELECT key, gaps FROM feed"))


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
    """All that is kept of the servers' logs, as of one moment; as `read_starts` in all else."""
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


@contextmanager
def _read_only(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        if path.is_dir():
            raise StoreError(f"{path}: expected a file, found a folder")
        path.stat()
        # Without a log beside it nobody writes, and opening it in the usual way would make one.
        quiet = not path.with_name(path.name + "-wal").exists()
        uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if quiet else ''}"
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as database:
            yield database
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None
    except sqlite3.Error as error:
        if path.is_dir() or "no such table" in str(error):
            raise StoreError(f"{path}: this is no store of kvexporter's") from None
        raise StoreError(f"{path}: {error}") from None


def _starts(database: sqlite3.Connection) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for server, detail in database.execute("SELECT server, detail FROM start ORDER BY server, began"):
        found.setdefault(server, []).append(detail)
    return found


def _make_private(path: Path) -> None:
    """Have the file, new or old, for its owner alone: it tells who sent how much when."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(PermissionError):  # another's, that is shared on purpose
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _lock(path: Path) -> IO[bytes]:
    """Hold the lock for as long as the file is open: two exporters would mix their counts."""
    _make_private(path)
    lock = path.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise StoreError(
            f"{path}: another kvexporter is using this store: stop it, or choose another place with --storage.path",
            final=True,
        ) from None
    return lock
