"""The servers being watched: which source feeds which model, as servers come and go."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kvexporter.announcing import say_news, say_no_log
from kvexporter.bell import Bell
from kvexporter.catching_up import without_the_past
from kvexporter.facts import GpuSample
from kvexporter.feed import Feed
from kvexporter.gpu_memory import process_memory
from kvexporter.gpu_visibility import visible_gpus
from kvexporter.headers import HeaderReading
from kvexporter.journals import Journals
from kvexporter.keeper import Keeper
from kvexporter.process_watch import ProcessWatch
from kvexporter.server import Server
from kvexporter.server_polling import ServerPolling
from kvexporter.snapshot import ServerSnapshot
from kvexporter.targets import Target, options_of, with_address
from kvexporter.watched import MAX_SERVERS, Watched

log = logging.getLogger(__name__)

DROPPED = ("server", "child", "slot")

JOURNAL_DELAY = 30.0
"""journald announces lines half a second late, and an overloaded machine much later: silence counts only after this."""

FORGET_SECONDS = 600.0
"""A discovered server that is gone is shown as down for so long, so that somebody can be told."""


class Fleet:
    """All watched servers. `on_change` is called when there may be new processes; `clock` gives unix seconds."""

    def __init__(self, on_change: Callable[[], None], keeper: Keeper, clock: Callable[[], float] = time.time) -> None:
        self.watched: dict[str, Watched] = {}
        self.dropped: Counter[str] = Counter(dict.fromkeys(DROPPED, 0))
        """Times that something was left out because there was too much of it, by kind."""
        self.look_soon = on_change
        self._clock = clock
        self._processes = ProcessWatch(keeper, clock)
        self._headers = HeaderReading()
        self._journals = Journals(self, keeper, clock)
        self._polling = ServerPolling(self._log_is_read, clock)
        self._without_log: set[str] = set()
        """Servers of which it was said that no log of theirs is read."""

    # ---- servers come and go -----------------------------------------------------------------------------------

    def apply(self, targets: Iterable[Target]) -> None:
        """Watch exactly these targets from now on; discovered ones that are missing are kept as down for a while."""
        now = self._clock()
        wanted = {target.name: target for target in targets}
        self._name_children(wanted.values())
        for name in list(self.watched):
            target = wanted.get(name)
            if target is None:
                self._missing(self.watched[name], now)
            elif not _same_server(self.watched[name].target, target):
                self._remove(name)
        for name, target in wanted.items():
            watched = self.watched.get(name)
            if watched is None and len(self.watched) >= MAX_SERVERS:
                self.drop("server", f"more than {MAX_SERVERS} servers: {name} and others are not watched")
                continue
            if watched is None:
                watched = self.add(target)
            self.update(watched, target, now)
        self._journals.prune()
        self._processes.keep(set(self.pids()))

    def show_down(self, targets: Iterable[Target]) -> None:
        """Show servers as down, for a while, that were watched before this exporter started and are not there now."""
        now = self._clock()
        for target in targets:
            known = any(watched.target.selection == target.selection for watched in self.watched.values())
            if not known and target.name not in self.watched and len(self.watched) < MAX_SERVERS:
                self._missing(self.add(target), now)

    async def aclose(self) -> None:
        """Stop all sources."""
        await self._journals.aclose()
        for watched in self.watched.values():
            self._polling.stop(watched)
        await self._polling.aclose()
        self._processes.keep(set())

    def add(self, target: Target) -> Watched:
        """Watch one more server."""
        model = Server(
            target.name,
            unit=target.unit,
            url=target.api.base_url if target.api is not None else None,
            configured=target.geometry,
            poll_interval=target.poll_interval,
        )
        watched = self.watched[target.name] = Watched(target, model)
        log.info("watching %s", target.name)
        self._journals.add(watched)
        if target.selection is None and target.child_of is None and target.name not in self._without_log:
            self._without_log.add(target.name)
            say_no_log(watched)
        return watched

    def update(self, watched: Watched, target: Target, now: float) -> None:
        """Something about the server is known better now."""
        if target.process is None and watched.writer is not None:
            target = replace(target, process=watched.writer, options=options_of(watched.writer))
        old, watched.target = watched.target, _with_told_address(watched, target)
        watched.gone_since = None
        if target.options is not None:
            watched.model.launched_with(target.options)
        if target.process is not None and (old.process is None or old.process.pid != target.process.pid):
            watched.cpu_seen = watched.cpu_busy = None
            if old.process is not None and watched.poller is not None:
                watched.poller.restarted()
        self.look_at_process(watched, now)
        if watched.poller is None or old.api != watched.target.api:
            self._polling.start(watched)

    def addressed(self, watched: Watched) -> None:
        """The server's log may have told where it listens; taken when nothing better is known."""
        old, watched.target = watched.target, _with_told_address(watched, watched.target)
        if old.api != watched.target.api:
            self._polling.start(watched)

    def _missing(self, watched: Watched, now: float) -> None:
        target = watched.target
        if target.configured or self._unloaded(watched):
            self._remove(target.name)
            return
        watched.target = replace(target, process=None)
        watched.gone_since = watched.gone_since or now
        watched.model.process_seen(None, now)
        if now - watched.gone_since > FORGET_SECONDS:
            log.info("%s is gone", target.name)
            self._remove(target.name)

    def _unloaded(self, watched: Watched) -> bool:
        """A model that its router does not run now is neither up nor down: it is started when it is asked for."""
        router = self.watched.get(watched.target.child_of) if watched.target.child_of is not None else None
        return router is not None and router.target.process is not None

    def _name_children(self, targets: Iterable[Target]) -> None:
        """Children that were known by their lines alone get the names of the processes that turn out to write them."""
        for target in targets:
            if target.child_of is None or target.name in self.watched:
                continue
            for name, watched in list(self.watched.items()):
                known = watched.target
                if (known.child_of, known.port, known.process) == (target.child_of, target.port, None):
                    self.watched[target.name] = self.watched.pop(name)
                    watched.target = replace(known, name=target.name)
                    watched.model.name = target.name
                    break

    def _remove(self, name: str) -> None:
        watched = self.watched.pop(name)
        self._journals.remove(watched)
        self.dropped["slot"] += watched.model.slots_left_out
        self._polling.stop(watched)

    def drop(self, kind: str, text: str) -> None:
        """Count what is left out because there is too much of it; said the first time."""
        if not self.dropped[kind]:
            log.warning("%s", text)
        self.dropped[kind] += 1

    # ---- the sources -------------------------------------------------------------------------------------------

    def look_at_process(self, watched: Watched, now: float) -> bool:
        """Read the server's process; False if it was there and is gone."""
        return self._processes.look(watched, now)

    async def read_headers(self) -> None:
        """Read the model files of servers that were started since the last call; a dead disk makes it wait."""
        await self._headers.step(self.watched.values())

    def pids(self) -> list[int]:
        """The processes of all servers that have one on this host."""
        return [watched.target.process.pid for watched in self.watched.values() if watched.target.process is not None]

    def gpus_seen(self, gpus: Sequence[GpuSample]) -> None:
        """Tell each server what its process holds on these GPUs."""
        for watched in self.watched.values():
            process = watched.target.process
            held: dict[str, int] = {}
            if process is not None:
                visible = visible_gpus(process.cuda_visible_devices, process.cuda_device_order, gpus)
                held = process_memory(gpus, process.pid, visible)
            watched.model.gpu_memory_seen(held)

    def read_journals(self, pace: float) -> None:
        """Have every journal read, and tried every `pace` seconds besides what it announces."""
        self._journals.read(pace)

    def keep(self, *, at_once: bool = False) -> None:
        """Have what was counted written: at once when an incident has closed or if told so, else once a second."""
        self._journals.keep(at_once=at_once)

    def _log_is_read(self, watched: Watched) -> bool:
        feed = self._journals.of(watched)
        return feed is not None and feed.follower.status.success

    # ---- what the daemon asks ----------------------------------------------------------------------------------

    @property
    def feeds(self) -> list[Feed]:
        """The journals that are read."""
        return self._journals.feeds

    @property
    def heard(self) -> Bell:
        """A journal had something to say since this was cleared."""
        return self._journals.heard

    @property
    def ended(self) -> Bell:
        """A server's process has ended since this was cleared."""
        return self._processes.ended

    @property
    def calm(self) -> bool:
        """There are servers, all of them run and none works: nothing is expected to happen that is not told."""
        servers = self.watched.values()
        return bool(servers) and not self.busy and all(each.model.state in ("ready", "sleeping") for each in servers)

    @property
    def busy(self) -> bool:
        """A server works, or an error's outcome is awaited: its journal is worth a look between announcements."""
        return any(watched.model.busy or watched.model.cascade_open for watched in self.watched.values())

    @property
    def settling(self) -> bool:
        """A process was started, or found, and what it takes once it has settled is not measured yet."""
        models = [watched.model for watched in self.watched.values() if watched.model.process is not None]
        return any(model.memory_at_ready.start is None and model.state != "sleeping" for model in models)

    @property
    def watches_processes(self) -> bool:
        """The use of CPU time matters: a server works, or its log does not tell when it does."""
        return any(watched.model.busy or not watched.model.log_tells_tasks for watched in self.watched.values())

    @property
    def caught_up(self) -> bool:
        """Every journal has been read to its end once, or cannot be read."""
        return self._journals.caught_up

    @property
    def reads_well(self) -> bool:
        """Every journal is read without trouble."""
        return all(feed.follower.status.success for feed in self.feeds)

    def tick(self, now: float) -> None:
        """Let time pass in the models; for what their logs tell only up to where these have been read."""
        read_until = self._journals.read_until()
        for name, watched in self.watched.items():
            until = read_until.get(watched.target.child_of or name, now)
            watched.model.tick(now, quiet=JOURNAL_DELAY + max(0.0, now - until))
            seen = (watched.model.busy, watched.model.state, watched.model.listening)
            if seen != watched.seen and watched.poller is not None:
                watched.seen = seen
                watched.poller.wake()
            feed = self._journals.of(watched)
            caught_up = feed is None or feed.follower.caught_up
            if caught_up and watched.target.configured and _seen_nowhere(watched):
                watched.model.process_seen(None, now)  # what was named is not there: that is down, not unknown
            say_news(watched, now, caught_up=caught_up, log_expected=feed is not None and feed.follower.status.success)

    def snapshots(self, now: float) -> tuple[ServerSnapshot, ...]:
        """All servers by name, but not a router's models that are not loaded."""
        shown = (self.watched[name] for name in sorted(self.watched))
        return tuple(self._snapshot(w, now) for w in shown if w.target.process is not None or not self._unloaded(w))

    def _snapshot(self, watched: Watched, now: float) -> ServerSnapshot:
        feed, snapshot = self._journals.of(watched), watched.model.snapshot(now)
        if feed is None:
            return snapshot
        # What systemd says of a unit is told to the first of its servers, and true of all of them.
        first = self.watched.get(feed.members[0]) if feed.members else None
        if first is not None and first is not watched and first.model.has_unit:
            stopped = first.model.stopped_on_request
            snapshot = replace(snapshot, life=replace(snapshot.life, stopped_on_request=stopped))
        return snapshot if feed.follower.caught_up else without_the_past(snapshot)

    def up_to_date(self) -> set[str]:
        """The servers whose models are of now: their logs, where they are read, have been caught up with."""
        feeds = {name: self._journals.of(watched) for name, watched in self.watched.items()}
        return {
            name
            for name, feed in feeds.items()
            if (feed is None or feed.follower.caught_up) and not self.watched[name].model.behind
        }

    def left_out(self) -> dict[str, int]:
        """Kind → times that something was left out because there was too much of it."""
        slots = sum(watched.model.slots_left_out for watched in self.watched.values())
        return {**self.dropped, "slot": self.dropped["slot"] + slots}

    def journal_lines(self) -> dict[str, int]:
        """Result → entries, over all journals there have been."""
        return self._journals.lines()

    def journal_gaps(self) -> int:
        """Times that entries were gone before they were read, over all journals there have been."""
        return self._journals.gaps()


def _with_told_address(watched: Watched, target: Target) -> Target:
    listening = watched.model.listening
    return target if target.api is not None or listening is None else with_address(target, *listening)


def _seen_nowhere(watched: Watched) -> bool:
    """No process, no address and no word in a log tells whether there is such a server."""
    return watched.target.process is None and watched.target.api is None and watched.model.state is None


def _same_server(old: Target, new: Target) -> bool:
    """The counts so far are of the same server."""
    return (old.unit, old.selection, old.child_of, old.geometry, old.poll_interval, old.configured) == (
        new.unit,
        new.selection,
        new.child_of,
        new.geometry,
        new.poll_interval,
        new.configured,
    )
