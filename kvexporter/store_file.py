"""The store's file: one exporter at a time, of this version's format, and set aside when it cannot be read."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from kvexporter.store_limits import forget_old
from kvexporter.store_schema import MIGRATIONS, SCHEMA, SCHEMA_VERSION

log = logging.getLogger(__name__)

BUSY_SECONDS = 2.0
"""How long to wait for another who has the file locked."""


class StoreError(Exception):
    """The store cannot be used; the text says why and what to do. `final`: trying again will not help."""

    def __init__(self, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


class StoreFile:
    """The open file and its lock. Raises StoreError when it cannot be opened, as `Store` says."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        """`now`: unix seconds."""
        self.path = path
        self.set_aside: Path | None = None
        """Where a file went that could not be read; this one took its place."""
        self.begun_anew = False
        """This file took the place of one that could not be read, now or at an earlier start."""
        self._now = now
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _lock(path.with_name(path.name + ".lock"))
            try:
                self.database = self._open()
            except BaseException:
                self._lock.close()
                raise
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}: choose another place with --storage.path") from None

    def close(self) -> None:
        """Close the file and let go of the lock."""
        try:
            self.database.close()
        finally:
            self._lock.close()

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
        database = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
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
                database.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            elif version < SCHEMA_VERSION:
                lacking = MIGRATIONS[version]
                database.executescript(f"BEGIN; {lacking} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            if self.set_aside is not None:
                database.execute("INSERT INTO origin VALUES (?)", (self._now(),))
            if (problem := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(problem)
            self.begun_anew = database.execute("SELECT count(*) FROM origin").fetchone()[0] > 0
            with contextlib.suppress(sqlite3.OperationalError):  # a full disk: another time
                forget_old(database, self._now())
        except BaseException:
            database.close()
            raise
        return database

    def _put_aside(self, error: Exception) -> None:
        """Keep a file that cannot be read, under a new name."""
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._now()))
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


def is_damage(error: Exception) -> bool:
    """Whether the file itself is broken, and not the disk full or the file in use."""
    return isinstance(error, sqlite3.DatabaseError) and (
        not isinstance(error, sqlite3.OperationalError | sqlite3.IntegrityError | sqlite3.ProgrammingError)
        or "malformed" in str(error)
    )


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
