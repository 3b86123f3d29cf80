"""Keeps the store: what was counted is written once a second by a thread of its own, which alone waits for the disk."""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kvexporter.server import Server, ServerMemory
from kvexporter.store import Batch, Store, StoredAlerts, StoredFeed, StoredStart, StoreError, is_damage

log = logging.getLogger(__name__)

COMMIT_SECONDS = 1.0
HANGING_SECONDS = 10.0
OPEN_ATTEMPTS = 12
OPEN_PAUSE = 5.0
OPEN_SECONDS = 60.0
"""Journals wait so long for a store whose disk does not answer; then they are counted without being kept."""
CLOSE_SECONDS = 5.0
STARTS_WAITING = 200
MOST_WAITING = 1_000
"""Things to be written that the thread has not come to, while the disk hangs."""


@dataclass(frozen=True, slots=True)
class _NotOpened:
    """Why the store could not be opened, and whether that is tried again."""

    text: str
    again: bool


_Opening = tuple[dict[str, StoredFeed], bool] | StoreError | _NotOpened

_Work = Batch | StoredStart | StoredAlerts

_memories = msgspec.json.Decoder(dict[str, ServerMemory])


class Keeper:
    """The daemon's side of the store. Without a path nothing is kept.

    `failures` counts commits and openings that failed; the daemon goes on without. What was not committed is committed
    later, or counted again from the journal after a restart.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.settled = path is None
        """It is known what was stored, or that nothing can be: journals may be read now."""
        self.failures = 0
        self.problem: str | None = None
        """Why nothing is kept at the moment; None while all is well, and without a path."""
        self.fatal: StoreError | None = None
        """The store must not be used at all: of a newer version, or in use by another exporter."""
        self.begun_anew = False
        """The store could not be read and was set aside: count what the journal still holds from its beginning."""
        self._path = path
        self._clock = clock
        self._feeds: dict[str, StoredFeed] = {}
        self._open = False
        self._opening_since = 0.0
        """When the attempt to open it that is under way began, by the clock."""
        self._under_way: dict[str, float] = {}
        self._committed: dict[str, tuple[str, float]] = {}
        self._pending: dict[str, Batch] = {}
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._starts: dict[str, bytes] = {}
        """Each server's latest start."""
        self._starts_waiting: list[StoredStart] = []
        """Could not be written, and go with the next one that can."""
        self.alerts: bytes | None = None
        """The alerts that an earlier exporter kept; None if it kept none. Known once `settled`."""
        self._alerts_put: StoredAlerts | None = None
        """The latest ones."""
        self._alerts_wait = False
        """They could not be written."""
        self._done: queue.SimpleQueue[tuple[_Work, str | None]] = queue.SimpleQueue()
        self._opened: queue.SimpleQueue[_Opening] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to open the store."""
        if self._path is not None:
            self._opening_since = self._clock()
            # A daemon thread: one that a dead disk holds for ever must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, args=(self._path,), name="store", daemon=True)
            self._thread.start()

    def step(self) -> None:
        """Take note of what the thread has done since; to be called often."""
        while not self._opened.empty():
            self._take_opening(self._opened.get())
        if not self.settled and self._thread is not None and self.fatal is None:
            self._wait_for_opening()
        if self._thread is not None and not self._thread.is_alive() and not self.settled:
            self.settled = True  # given up: count without keeping
        while not self._done.empty():
            batch, error = self._done.get()
            if isinstance(batch, StoredStart):
                self._start_done(batch, error)
                continue
            if isinstance(batch, StoredAlerts):
                self._alerts_done(batch, error)
                continue
            self._under_way.pop(batch.key, None)
            if error is None:
                self._committed[batch.key] = (batch.position, self._clock())
                self._feeds[batch.key] = StoredFeed(batch.position, batch.gaps, batch.servers)
                self._recovered()
            else:
                self._give_back(batch)
                self._failed(error)
        if any(self._clock() - since > HANGING_SECONDS for since in self._under_way.values()) and not self.problem:
            self._failed("a commit has not come back: is the disk hanging?")

    def keep_start(self, start: StoredStart) -> None:
        """Have one start of a server written."""
        if self._open:
            self._starts[start.server] = start.detail
            if self._work.qsize() < MOST_WAITING:
                self._work.put(start)
            else:
                self._starts_waiting = [*self._starts_waiting, start][-STARTS_WAITING:]

    def keep_alerts(self, detail: bytes) -> None:
        """Have the alerts written in place of those written before."""
        if self._open:
            self._alerts_put = StoredAlerts(detail)
            self._alerts_wait = self._work.qsize() >= MOST_WAITING
            if not self._alerts_wait:
                self._work.put(self._alerts_put)

    def last_start(self, server: str) -> bytes | None:
        """What is kept of a server's latest start; None of one that is not known."""
        return self._starts.get(server)

    def stored(self, since: float) -> list[tuple[str, list[str]]]:
        """The journals that were committed since then (unix seconds): key and names of the servers."""
        recalled = [(key, self.recall(key)) for key, feed in self._feeds.items() if feed.updated >= since]
        return [(key, list(found[1])) for key, found in recalled if found is not None]

    def recall(self, key: str) -> tuple[StoredFeed, dict[str, ServerMemory]] | None:
        """What was stored of a journal; None if nothing was, or nothing that can be read."""
        stored = self._feeds.get(key)
        if stored is None:
            return None
        try:
            return stored, _memories.decode(stored.servers)
        except (msgspec.DecodeError, ValueError) as error:
            log.error("what was stored for %s cannot be read and is counted anew: %s", key, error)
            return None

    def commit(
        self,
        key: str,
        position: str | None,
        gaps: int,
        servers: list[Server],
        others: Mapping[str, ServerMemory],
        *,
        urgent: bool = False,
    ) -> bool:
        """Have what these servers counted up to `position` written, unless it was a moment ago and is not urgent.

        `others`: what is known of servers that are not watched now. False when nothing was written, or nothing is new.
        """
        if self._path is None:
            for server in servers:
                server.take_news()  # nobody else does, and it must not pile up
            return False
        if not self._open or position is None or key in self._under_way:
            return False
        last = self._committed.get(key)
        if last is not None and not urgent and (last[0] == position or self._clock() - last[1] < COMMIT_SECONDS):
            return False
        batch = self._pending.pop(key, None) or Batch(key, position, gaps, b"")
        batch.position, batch.gaps = position, gaps
        for server in servers:
            news = server.take_news()
            batch.requests += [(server.name, *request) for request in news.requests]
            batch.incidents += [
                (server.name, number, incident.ended, msgspec.json.encode(incident))
                for number, incident in news.incidents
            ]
        batch.servers = msgspec.json.encode({**others, **{server.name: server.memory() for server in servers}})
        self._under_way[key] = self._clock()
        self._work.put(batch)
        return True

    def close(self) -> None:
        """Let the thread finish what it was given, for a few seconds."""
        self._stop.set()
        self._work.put(None)
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
            if self._thread.is_alive():
                log.warning("the store did not close: what was read last is counted again at the next start")
        self.step()

    # ---- on the thread -----------------------------------------------------------------------------------------

    def _run(self, path: Path) -> None:
        store = self._try_to_open(path)
        if store is None:
            return
        while (batch := self._work.get()) is not None:
            try:
                store = store or Store(path)
                if isinstance(batch, StoredStart):
                    store.add_start(batch)
                elif isinstance(batch, StoredAlerts):
                    store.put_alerts(batch.detail)
                else:
                    store.commit(batch)
                self._done.put((batch, None))
            except Exception as error:  # whatever it is, the next batch may do better, and nobody else would say it
                self._done.put((batch, str(error)))
                if store is not None and is_damage(error):
                    _close(store)
                    store = None  # opening it again sets it aside
        if store is not None:
            _close(store)

    def _try_to_open(self, path: Path) -> Store | None:
        """The open store; None if it must not or cannot be used. A full disk may have room again in a minute."""
        for attempt in range(OPEN_ATTEMPTS):
            again = _exists(path) and attempt < OPEN_ATTEMPTS - 1
            store = None
            try:
                store = Store(path)
                self._starts = {server: details[-1] for server, details in store.starts().items()}
                self.alerts = store.alerts()
                self._opened.put((store.feeds(), store.begun_anew))
                return store
            except StoreError as error:
                if error.final:
                    self._opened.put(error)
                    return None
                self._opened.put(_NotOpened(str(error), again))
            except (sqlite3.Error, OSError) as error:
                self._opened.put(_NotOpened(f"{path}: {error}: choose another place with --storage.path", again))
            if store is not None:
                _close(store)
            if not again or self._stop.wait(OPEN_PAUSE):
                break
        return None

    # ---- on the loop -------------------------------------------------------------------------------------------

    def _wait_for_opening(self) -> None:
        waiting = self._clock() - self._opening_since
        if waiting > OPEN_SECONDS:
            self.settled = True  # given up: count without keeping
            self._failed(f"it could not be opened within {OPEN_SECONDS:.0f} s: is the disk hanging?", again=False)
        elif waiting > HANGING_SECONDS and self.problem is None:
            self._failed("it has not been opened yet: is the disk hanging?")

    def _take_opening(self, outcome: _Opening) -> None:
        self._opening_since = self._clock()
        if isinstance(outcome, StoreError):
            self.fatal = outcome
        elif self.settled:
            # Too late: what was counted meanwhile does not go on where the store ends.
            log.warning("the disk of the store has answered: what is counted is kept again from the next start on")
        elif isinstance(outcome, _NotOpened):
            self._failed(outcome.text, again=outcome.again)
        else:
            self._feeds, self.begun_anew = outcome
            self._open = self.settled = True
            self._recovered()

    def _start_done(self, start: StoredStart, error: str | None) -> None:
        if error is None:
            self._recovered()
            waiting, self._starts_waiting = self._starts_waiting, []
            for other in waiting:
                self._work.put(other)
        else:
            self._starts_waiting = [*self._starts_waiting, start][-STARTS_WAITING:]
            self._failed(error)

    def _alerts_done(self, alerts: StoredAlerts, error: str | None) -> None:
        if error is None:
            self._recovered()
        else:
            self._alerts_wait = alerts is self._alerts_put  # else later ones are on their way
            self._failed(error)

    def _give_back(self, batch: Batch) -> None:
        """News that were not written go with the next batch, as many as a store would keep."""
        batch.requests = batch.requests[-10_000:]
        batch.incidents = batch.incidents[-1_000:]
        self._pending[batch.key] = batch
        self._committed[batch.key] = ("", self._clock())

    def _failed(self, problem: str, *, again: bool = True) -> None:
        self.failures += 1
        if self.problem is None or not again:
            then = "it is tried again" if again else "nothing is kept over a restart"
            log.error("the store cannot be written (%s): counting goes on, and %s", problem, then)
        self.problem = problem

    def _recovered(self) -> None:
        if self.problem is not None:
            log.info("the store is written again")
        self.problem = None
        if self._alerts_wait and self._alerts_put is not None:
            self.keep_alerts(self._alerts_put.detail)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # what is in the way cannot be known, and does not go away by itself


def _close(store: Store) -> None:
    try:
        store.close()
    except sqlite3.Error as error:
        log.warning("%s: %s", store.path, error)
