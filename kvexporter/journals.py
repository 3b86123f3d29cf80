"""The journals of all watched servers: each is read once, for all that write into it, and kept with what it counted."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable

from kvexporter.announcing import say_unit_event
from kvexporter.bell import Bell
from kvexporter.facts import JournalEntry
from kvexporter.feed import Feed
from kvexporter.follower import JournalFollower
from kvexporter.intake import LogIntake
from kvexporter.keeper import Keeper
from kvexporter.llama.events import LogLine, TaskLaunched
from kvexporter.log_writers import LogWriters
from kvexporter.reading_links import ReadingLinks, place_of
from kvexporter.sources.journal_mark import parse_mark
from kvexporter.sources.log_mark import parse_log_mark
from kvexporter.sources.log_selection import LogFileSelection, Selection, StdinSelection
from kvexporter.turns import Turns
from kvexporter.watched import Roster, Watched

log = logging.getLogger(__name__)

KEEP_SECONDS = 0.9
"""What was counted is written at most so often, but for incidents; with the loop's steps, once a second."""
FILE_SECONDS = 1.0
"""A log file announces nothing: it is looked at so often at least."""
OLD_SECONDS = 10.0
"""What the log tells of longer ago is not what the server does now."""
WAKE_SECONDS = 1.0
"""While old entries are read, the poller decides anew at most so often."""


class Journals:
    """The feeds, as servers come and go. `clock` gives unix seconds."""

    def __init__(self, roster: Roster, keeper: Keeper, clock: Callable[[], float]) -> None:
        self.feeds: list[Feed] = []
        self.heard = Bell()
        """A journal had something to say since this was cleared."""
        self._roster = roster
        self._keeper = keeper
        self._clock = clock
        self._links = ReadingLinks(Turns())
        self._leaving: set[asyncio.Task[None]] = set()
        self._said: set[str] = set()
        """Kinds of errors that have been logged."""
        self._lines_before: Counter[str] = Counter()
        """Of feeds that are gone."""
        self._gaps_before: dict[str, int] = {}
        """Of feeds that are gone, by key, until they come back."""

    # ---- servers come and go -----------------------------------------------------------------------------------

    def add(self, watched: Watched) -> None:
        """Read a new server's journal too, and give it back what is known of it."""
        target = watched.target
        if target.selection is not None:
            members = self._feed(target.selection).members
            if target.name not in members:
                members.append(target.name)
        for feed in self.feeds:
            if feed.follower.recalled and _writes(watched, feed):
                _recall(feed, watched)

    def remove(self, watched: Watched) -> None:
        """Keep what is known of a server that goes: its journal is read on, and it may come back."""
        for feed in self.feeds:
            if feed.follower.recalled and _writes(watched, feed):
                feed.remember(watched.target.name, watched.model.memory())

    def prune(self) -> None:
        """Close the journals of which no server is left."""
        for feed in list(self.feeds):
            watched = self._roster.watched
            feed.members[:] = [name for name in feed.members if name in watched]  # its intake holds the same list
            if not feed.members:
                feed.follower.close()
                self.feeds.remove(feed)
                self._lines_before.update(_lines(feed))
                self._gaps_before[feed.key] = feed.follower.gaps
        for link in self._links.keep(feed.place for feed in self.feeds):
            leaving = asyncio.get_running_loop().create_task(link.aclose())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def aclose(self) -> None:
        """Stop reading."""
        for feed in self.feeds:
            feed.follower.close()
        await asyncio.gather(*(link.aclose() for _, link in self._links), *self._leaving)

    def _feed(self, selection: Selection) -> Feed:
        for feed in self.feeds:
            if feed.selection == selection:
                return feed
        members: list[str] = []
        writers = LogWriters(self._roster, selection, members, self._clock)
        intake = LogIntake(writers.of, writers.names.starting)
        follower = JournalFollower(
            selection,
            self._links.of(place_of(selection)),
            lambda entry: self._survive(intake, writers, entry),
            writers_from=writers.matter_from,
        )
        feed = Feed(selection, follower, intake, members)
        writers.memories = lambda: feed.memories
        self.feeds.append(feed)
        return feed

    # ---- entries -----------------------------------------------------------------------------------------------

    def _survive(self, intake: LogIntake, writers: LogWriters, entry: JournalEntry) -> None:
        """Take one journal entry; an error of our own costs this one, not those behind it, which are read only once."""
        self.heard.set()
        try:
            self._entry(intake, writers, entry)
        except Exception as error:
            intake.results["malformed"] += 1
            kind = type(error).__name__
            if kind not in self._said:
                self._said.add(kind)
                # Without the error's own words, which may quote the entry.
                where = "".join(traceback.format_tb(error.__traceback__))
                log.error("an entry of the journal could not be taken in: unexpected %s\n%s", kind, where)

    def _entry(self, intake: LogIntake, writers: LogWriters, entry: JournalEntry) -> None:
        """Take one journal entry, and have the poller decide anew if that changed what it decides by."""
        model = intake.entry(entry)
        if model is None:
            return
        now, watched = self._clock(), self._roster.watched[model.name]
        reading = entry.reading
        if isinstance(reading, LogLine) and type(reading.event) is TaskLaunched and watched.poller is not None:
            watched.poller.launched(now - entry.at)
        if entry.unit_event is not None:
            say_unit_event(watched, entry.unit_event, entry.at, now)
        if watched.gone_since is not None:
            watched.gone_since = max(watched.gone_since, min(entry.at, now))  # its unit is still being started
        if watched.target.process is None:
            writers.ask(watched, entry)
        seen = (model.busy, model.state, model.listening)
        if seen == watched.seen:
            return
        if now - entry.at > OLD_SECONDS and now - watched.woken_at < WAKE_SECONDS:
            return  # of times past: the poller hears of what came of it
        watched.woken_at = now
        if model.listening != watched.seen[2]:
            self._roster.addressed(watched)
        finished = watched.seen[0] and not model.busy
        watched.seen = seen
        if model.lives != watched.lives:
            watched.lives = model.lives
            if watched.poller is not None:
                watched.poller.restarted()
            self._roster.look_soon()
        elif watched.poller is not None:
            if finished:
                watched.poller.look()
            else:
                watched.poller.wake()

    # ---- reading and keeping -----------------------------------------------------------------------------------

    def read(self, pace: float) -> None:
        """Have every journal read, and tried every `pace` seconds besides what it announces.

        One that is new here first gets back what was stored of it.
        """
        if not self._keeper.settled:
            return
        self._part()
        for kind, link in self._links:
            link.pace(pace if kind == "journal" else min(pace / 2, FILE_SECONDS))
        for feed in self.feeds:
            if not feed.follower.recalled:
                self._recall(feed)
            feed.follower.poke()

    def _part(self) -> None:
        """Have other processes go on with what shares one with a log that hangs."""
        moved = self._links.part({feed.follower: (feed.place, feed.follower.heard) for feed in self.feeds})
        for feed in self.feeds:
            if feed.place in moved:
                feed.follower.read_by(moved[feed.place])

    def keep(self, *, at_once: bool = False) -> None:
        """Have what was counted written: at once when an incident has closed or if told so, else once a second."""
        for feed in self.feeds:
            models = [watched.model for watched in self._writers(feed)]
            if isinstance(feed.selection, StdinSelection):
                for model in models:
                    model.take_news()  # nothing of it is kept, as nobody knows where the next one's stream begins
                continue
            seen = sum(model.incidents_seen for model in models)
            follower, urgent = feed.follower, seen != feed.incidents
            now = time.monotonic()
            if not urgent and not at_once and now - feed.kept < KEEP_SECONDS:
                continue
            feed.kept = now
            if self._keeper.commit(feed.key, follower.position, follower.gaps, models, feed.memories, urgent=urgent):
                feed.incidents = seen

    def _recall(self, feed: Feed) -> None:
        recalled, gaps = self._keeper.recall(feed.key), self._gaps_before.pop(feed.key, 0)
        if recalled is None or recalled[1].keys().isdisjoint(feed.members) or not _readable(feed, recalled[0].position):
            feed.follower.start_after(None, gaps, head=self._keeper.begun_anew)
            return
        stored, feed.memories = recalled
        feed.follower.start_after(stored.position, max(stored.gaps, gaps))
        for watched in self._writers(feed):
            _recall(feed, watched)
            if watched.gone_since is not None:
                watched.model.process_seen(None, self._clock())  # whatever it was when it was stored
            self._roster.addressed(watched)

    def _writers(self, feed: Feed) -> list[Watched]:
        """The servers whose lines come in this journal, a router's children included."""
        return [watched for watched in self._roster.watched.values() if _writes(watched, feed)]

    # ---- what others ask ---------------------------------------------------------------------------------------

    @property
    def caught_up(self) -> bool:
        """Every journal has been read to its end once, or cannot be read."""
        return all(feed.follower.caught_up for feed in self.feeds)

    def of(self, watched: Watched) -> Feed | None:
        """The journal that has a server's lines; None if none is read."""
        return next((feed for feed in self.feeds if _writes(watched, feed)), None)

    def read_until(self) -> dict[str, float]:
        """Server → moment (unix seconds) up to which its journal has been read; a router's children under its name."""
        return {name: feed.follower.read_until for feed in self.feeds for name in feed.members}

    def lines(self) -> dict[str, int]:
        """Result → entries, over all journals there have been."""
        lines: Counter[str] = Counter(matched=0, ignored=0, continued=0, malformed=0)
        lines.update(self._lines_before)
        for feed in self.feeds:
            lines.update(_lines(feed))
        return dict(lines)

    def gaps(self) -> int:
        """Times that entries were gone before they were read, over all journals there have been."""
        return sum(self._gaps_before.values()) + sum(feed.follower.gaps for feed in self.feeds)


def _writes(watched: Watched, feed: Feed) -> bool:
    return watched.target.name in feed.members or watched.target.child_of in feed.members


def _recall(feed: Feed, watched: Watched) -> None:
    memory = feed.memories.pop(watched.target.name, None)
    if memory is not None:
        watched.model.remember(memory)
        watched.announced.forget_before(watched.model)


def _lines(feed: Feed) -> Counter[str]:
    return feed.intake.results + feed.follower.lines


def _readable(feed: Feed, position: str) -> bool:
    """Whether reading can go on from a stored position; without it what was counted up to there is of no use."""
    try:
        if isinstance(feed.selection, LogFileSelection):
            parse_log_mark(position)
        else:
            parse_mark(position)
    except ValueError:
        log.error("a stored journal position cannot be read: its servers are counted anew")
        return False
    return True
