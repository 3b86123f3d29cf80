"""Keeps the store: what was counted is written once a second by a thread of its own, which alone waits for the disk."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from kvexporter.beginning_anew import begun_anew
from kvexporter.server import Server
from kvexporter.server_memory import ServerMemory
from kvexporter.store import Batch, Store, StoredAlerts, StoredFeed, StoredStart
from kvexporter.store_file import StoreError, is_damage
from kvexporter.store_opening import Opened, Opening, close_store, open_store

log = logging.getLogger(__name__)

COMMIT_SECONDS = 1.0
HANGING_SECONDS = 10.0
OPEN_SECONDS = 60.0
"""Journals wait so long for a store whose disk does not answer; then this process counts without it."""
LATE_OPEN_SECONDS = 600.0
"""The same in a process that was begun anew for it: a large store on a slow disk may take that long at each start."""
CLOSE_SECONDS = 5.0
STARTS_WAITING = 200
MOST_WAITING = 1_000
"""Things to be written that the thread has not come to, while the disk hangs."""


_Work = Batch | StoredStart | StoredAlerts

_memories = msgspec.json.Decoder(dict[str, ServerMemory])


class Keeper:
    """The daemon's side of the store. Without a path nothing is kept.

    `failures` counts commits and openings that failed; the daemon goes on without. What was not committed is committed
    later, or counted again from the journal after a restart.

    A store that could not be opened in time and can be later is `late`. What was counted meanwhile does not go on where
    it ends, so this process neither reads it nor writes it: that is for one that begins anew.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.settled = path is None
        """It is known what was stored, or that this cannot be known now: journals may be read."""
        self.late = False
        """The store was opened after it had been given up. It is held, so that no other exporter begins with it, until
        `let_go` or `close`."""
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
        self._told_again: bool | None = None
        """What was said last of a problem: that it is tried again soon, or that for now nothing is kept."""
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
        self._opened: queue.SimpleQueue[Opening] = queue.SimpleQueue()
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
            self.settled = True  # it has ended by an error of our own: count without keeping
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

    def let_go(self) -> None:
        """Have a `late` store closed: nothing will come of it here."""
        self._work.put(None)

    def keep_start(self, start: StoredStart) -> None:
        """Have one start of a server written, as soon as there is a store."""
        if self._path is None:
            return
        self._starts[start.server] = start.detail
        if self._open and self._work.qsize() < MOST_WAITING:
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
        store = open_store(path, self._opened.put, self._stop)
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
                    close_store(store)
                    store = None  # opening it again sets it aside
        if store is not None:
            close_store(store)

    # ---- on the loop -------------------------------------------------------------------------------------------

    def _wait_for_opening(self) -> None:
        waiting = self._clock() - self._opening_since
        patience = LATE_OPEN_SECONDS if begun_anew() else OPEN_SECONDS
        if waiting > patience:
            self.settled = True  # given up: count without keeping
            self._failed(f"it could not be opened within {patience:.0f} s: is the disk hanging?", again=False)
        elif waiting > HANGING_SECONDS and self.problem is None:
            self._failed("it has not been opened yet: is the disk hanging?")

    def _take_opening(self, outcome: Opening) -> None:
        self._opening_since = self._clock()
        if isinstance(outcome, Opened) and self.settled:
            self.late = True
            self.problem = "it could not be opened in time, and is used from the next start on"
        elif isinstance(outcome, Opened):
            self._feeds, self.begun_anew, self.alerts = outcome.feeds, outcome.begun_anew, outcome.alerts
            self._starts = {**outcome.starts, **self._starts}
            self._open = self.settled = True
            self._recovered()
        elif self.settled:
            # Also one that must not be used: who has counted without it for a while can go on so.
            self._failed(str(outcome.error), again=False)
        elif outcome.error.final:
            self.fatal = outcome.error
        else:
            self._failed(str(outcome.error), again=outcome.soon)
            self.settled = not outcome.soon  # given up for now: count without keeping

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
        if self.problem is None or again is not self._told_again:
            then = "it is tried again" if again else "nothing is kept over a restart until it can be used"
            log.error("the store cannot be written (%s): counting goes on, and %s", problem, then)
        self.problem, self._told_again = problem, again

    def _recovered(self) -> None:
        if self.problem is not None:
            log.info("the store is written again")
        self.problem = None
        if self._alerts_wait and self._alerts_put is not None:
            self.keep_alerts(self._alerts_put.detail)
