"""The servers being watched: which source feeds which model, as servers come and go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from kvexporter.facts import Endpoint, JournalEntry, PollReason
from kvexporter.follower import JournalFollower
from kvexporter.intake import MAX_CHILDREN, LogIntake, take_answer
from kvexporter.llama.launch import LaunchOptions
from kvexporter.llama.log import may_matter
from kvexporter.poller import ServerPoller
from kvexporter.polling import PollPolicy, ServerHints
from kvexporter.server import Server
from kvexporter.snapshot import ServerSnapshot
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.llama_api import ApiAnswer, LlamaApi
from kvexporter.sources.process import ProcessReader
from kvexporter.targets import Target, with_address

log = logging.getLogger(__name__)

MAX_SERVERS = 200
BUSY_CORES = 0.05
"""More CPU time than answering polls takes, in cores."""

JOURNAL_DELAY = 3.0
"""journald announces lines up to half a second late: silence counts only after this."""

FORGET_SECONDS = 600.0
"""A discovered server that is gone is shown as down for so long, so that somebody can be told."""


@dataclass(slots=True)
class Watched:
    """One server and what feeds it."""

    target: Target
    model: Server
    poller: ServerPoller | None = None
    gone_since: float | None = None
    cpu_seen: tuple[float, float] | None = None
    """(time, CPU seconds used) at the last look."""
    cpu_busy: bool | None = None
    """The process used CPU time since the last look: the hint, without a log, that it works."""
    api: LlamaApi | None = None
    lives: int = 0
    seen: tuple[bool, str | None, tuple[str, int] | None] = (False, None, None)
    """What the poller was told last: busy, state, address in the log."""


@dataclass(slots=True)
class Feed:
    """One journal and the servers that write into it."""

    selection: JournalSelection
    follower: JournalFollower
    intake: LogIntake
    members: list[str] = field(default_factory=list)


class Fleet:
    """All watched servers. `clock` gives unix seconds."""

    def __init__(self, on_change: Callable[[], None], clock: Callable[[], float] = time.time) -> None:
        self.watched: dict[str, Watched] = {}
        self.feeds: list[Feed] = []
        self.left_out = 0
        """Servers beyond the bound."""
        self._on_change = on_change
        self._clock = clock
        self._processes = ProcessReader()
        self._closing: set[asyncio.Task[None]] = set()

    # ---- servers come and go -----------------------------------------------------------------------------------

    def apply(self, targets: Iterable[Target]) -> None:
        """Watch exactly these targets from now on; discovered ones that are missing are kept as down for a while."""
        now = self._clock()
        wanted = {target.name: target for target in targets}
        for name in list(self.watched):
            target = wanted.get(name)
            if target is None:
                self._missing(self.watched[name], now)
            elif not _same_server(self.watched[name].target, target):
                self._remove(name)
        for name, target in wanted.items():
            watched = self.watched.get(name)
            if watched is None and len(self.watched) >= MAX_SERVERS:
                self.left_out += 1
                continue
            if watched is None:
                watched = self._add(target)
            self._update(watched, target, now)
        for feed in list(self.feeds):
            feed.members = [name for name in feed.members if name in self.watched]
            if not feed.members:
                feed.follower.close()
                self.feeds.remove(feed)

    async def aclose(self) -> None:
        """Stop all sources."""
        for feed in self.feeds:
            feed.follower.close()
        for watched in self.watched.values():
            self._stop_polling(watched)
        await asyncio.gather(*self._closing)

    def _add(self, target: Target) -> Watched:
        model = Server(
            target.name,
            unit=target.unit,
            url=target.api.base_url if target.api is not None else None,
            configured=target.geometry,
            poll_interval=target.poll_interval,
        )
        watched = self.watched[target.name] = Watched(target, model)
        log.info("watching %s", target.name)
        if target.selection is not None:
            self._feed(target.selection).members.append(target.name)
        return watched

    def _update(self, watched: Watched, target: Target, now: float) -> None:
        old, watched.target = watched.target, target
        watched.gone_since = None
        if target.options is not None:
            watched.model.launched_with(target.options)
        if target.process is not None and (old.process is None or old.process.pid != target.process.pid):
            watched.cpu_seen = watched.cpu_busy = None
            if old.process is not None and watched.poller is not None:
                watched.poller.restarted()
        self.look_at_process(watched, now)
        if watched.poller is None or old.api != target.api:
            self._poll(watched)

    def _missing(self, watched: Watched, now: float) -> None:
        if watched.target.configured:
            self._remove(watched.target.name)
            return
        watched.target = replace(watched.target, process=None)
        watched.gone_since = watched.gone_since or now
        watched.model.process_seen(None, now)
        if now - watched.gone_since > FORGET_SECONDS:
            log.info("%s is gone", watched.target.name)
            self._remove(watched.target.name)

    def _remove(self, name: str) -> None:
        self._stop_polling(self.watched.pop(name))

    # ---- the sources -------------------------------------------------------------------------------------------

    def look_at_process(self, watched: Watched, now: float) -> bool:
        """Read the server's process; False if it was there and is gone."""
        process = watched.target.process
        if process is None:
            if watched.model.process is not None:
                watched.model.process_seen(None, now)
            return True
        sample = self._processes.read(process.pid)
        if sample is not None and abs(sample.start_time - process.start_time) > 1.0:
            sample = None  # the number was given to another process
        watched.model.process_seen(sample, now)
        if sample is None:
            watched.target = replace(watched.target, process=None)
            return False
        if watched.cpu_seen is not None and now > watched.cpu_seen[0]:
            at, used = watched.cpu_seen
            busy = (sample.cpu_seconds - used) / (now - at) > BUSY_CORES
            if busy != watched.cpu_busy and watched.poller is not None:
                watched.poller.wake()
            watched.cpu_busy = busy
        watched.cpu_seen = (now, sample.cpu_seconds)
        return True

    def _feed(self, selection: JournalSelection) -> Feed:
        for feed in self.feeds:
            if feed.selection == selection:
                return feed
        members: list[str] = []
        intake = LogIntake(lambda port, pid: self._writer(members, port, pid))
        follower = JournalFollower(selection, may_matter, lambda entry: self._entry(intake, entry))
        feed = Feed(selection, follower, intake, members)
        self.feeds.append(feed)
        return feed

    def _writer(self, members: list[str], port: int | None, pid: int | None) -> Server:
        """The model of the server that wrote a line of a journal whose servers are `members`."""
        if port is not None:
            return self._child(members[0], port).model
        if len(members) > 1 and pid is not None:
            for name in members:
                process = self.watched[name].target.process
                if process is not None and process.pid == pid:
                    return self.watched[name].model
        return self.watched[members[0]].model

    def _child(self, router: str, port: int) -> Watched:
        """A router's child, known from the host's processes or only by its lines in the router's log."""
        children = [w for w in self.watched.values() if w.target.child_of == router]
        for child in children:
            if child.target.port == port:
                return child
        if len(children) >= MAX_CHILDREN or len(self.watched) >= MAX_SERVERS:
            self.left_out += 1
            return self.watched[router]
        parent = self.watched[router].target
        return self._add(
            replace(
                parent,
                name=f"{router}:{port}",
                selection=None,
                api=None,
                process=None,
                options=None,
                child_of=router,
                port=port,
                configured=False,
            )
        )

    def _entry(self, intake: LogIntake, entry: JournalEntry) -> None:
        """Take one journal entry, and have the poller decide anew if that changed what it decides by."""
        model = intake.entry(entry)
        if model is None:
            return
        watched = self.watched[model.name]
        seen = (model.busy, model.state, model.listening)
        if seen == watched.seen:
            return
        if model.listening is not None and model.listening != watched.seen[2] and watched.target.process is None:
            self._address(watched, *model.listening)
        finished = watched.seen[0] and not model.busy
        watched.seen = seen
        if model.lives != watched.lives:
            watched.lives = model.lives
            if watched.poller is not None:
                watched.poller.restarted()
            self._on_change()
        elif watched.poller is not None:
            if finished:
                watched.poller.look()
            else:
                watched.poller.wake()

    # ---- polling -----------------------------------------------------------------------------------------------

    def _address(self, watched: Watched, host: str, port: int) -> None:
        """The log told where the server listens; taken when nothing better is known."""
        if watched.target.api is None:
            watched.target = with_address(watched.target, host, port)
            self._poll(watched)

    def _poll(self, watched: Watched) -> None:
        """Poll the server at its target's address from now on."""
        self._stop_polling(watched)
        target = watched.target
        if target.api is None:
            return
        watched.model.url = target.api.base_url
        watched.api = LlamaApi(target.api, self._clock)
        watched.poller = ServerPoller(
            target.name,
            watched.api,
            PollPolicy(target.poll_interval, target.idle_poll_interval, target.name),
            lambda: self._hints(watched),
            lambda endpoint, answer: deliver(watched.model, endpoint, answer),
        )
        watched.poller.start()

    def _stop_polling(self, watched: Watched) -> None:
        poller, api = watched.poller, watched.api
        watched.poller = watched.api = None
        if poller is not None and api is not None:
            closing = asyncio.create_task(_close(poller, api))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _hints(self, watched: Watched) -> ServerHints:
        """What is known of the server without asking it."""
        model, target, options = watched.model, watched.target, watched.target.options
        props = model.props
        sleep_enabled = target.may_sleep
        if sleep_enabled is None and options is not None:
            sleep_enabled = options.sleep_idle_seconds is not None
        if sleep_enabled is None and props is not None and props.sleeping is None:
            sleep_enabled = False  # a build that cannot sleep
        log_leads = model.log_tells_tasks and self._log_is_read(watched)
        return ServerHints(
            busy=model.busy if log_leads else None,
            cpu_busy=watched.cpu_busy if target.process is not None else None,
            slots_idle=not model.busy if model.slots_seen else None,
            sleeping=model.state == "sleeping",
            sleep_enabled=sleep_enabled,
            loading=model.state == "loading",
            slots_supported=_supported(options.slots if options else None, props.endpoint_slots if props else None),
            metrics_supported=_supported(_has_metrics(options), props.endpoint_metrics if props else None),
            router=(options is not None and options.router) or (props is not None and bool(props.router)),
            needs_props=props is None,
        )

    def _log_is_read(self, watched: Watched) -> bool:
        name = watched.target.child_of or watched.target.name
        return any(name in feed.members and feed.follower.status.success for feed in self.feeds)

    # ---- what the daemon asks ----------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """A server works, or an error's outcome is awaited: its journal is worth a look between announcements."""
        return any(watched.model.busy or watched.model.cascade_open for watched in self.watched.values())

    @property
    def caught_up(self) -> bool:
        """Every journal has been read to its end once, or cannot be read."""
        return all(feed.follower.caught_up for feed in self.feeds)

    def tick(self, now: float) -> None:
        """Let time pass in the models whose journal has been read."""
        for watched in self.watched.values():
            watched.model.tick(now, quiet=JOURNAL_DELAY)

    def snapshots(self, now: float) -> tuple[ServerSnapshot, ...]:
        """All servers by name."""
        return tuple(self.watched[name].model.snapshot(now) for name in sorted(self.watched))

    def journal_lines(self) -> dict[str, int]:
        """Result → entries, over all journals."""
        lines: Counter[str] = Counter(matched=0, ignored=0, continued=0, malformed=0)
        for feed in self.feeds:
            lines.update(feed.intake.results)
            lines.update(feed.follower.lines)
        return dict(lines)


def deliver(model: Server, endpoint: Endpoint, answer: ApiAnswer) -> PollReason | None:
    """Give one answer to the model; the reason if its body was not what it should be."""
    if answer.reason is not None:
        model.poll_failed(endpoint, answer.reason, answer.answered_at)
        return None
    return take_answer(model, endpoint, answer.body, answer.answered_at)


def _supported(option: bool | None, told: bool | None) -> bool | None:
    return told if told is not None else option


def _has_metrics(options: LaunchOptions | None) -> bool | None:
    """`/metrics` is off unless it was asked for, on the command line or in an environment that may be unreadable."""
    if options is None or (options.metrics is None and not options.environment_known):
        return None
    return bool(options.metrics)


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


async def _close(poller: ServerPoller, api: LlamaApi) -> None:
    await poller.aclose()
    await api.aclose()
