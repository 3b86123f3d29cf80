"""Runs the demonstration: journal, stand-ins, the real exporter, and the commentary; leaves nothing behind."""

from __future__ import annotations

import contextlib
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from kvexporter.demo.alert_news import AlertNews
from kvexporter.demo.cast import STORIES, Player, player
from kvexporter.demo.commentary import Reading, others_line, pool_line, read_exposition
from kvexporter.demo.ending import Ended, Ending
from kvexporter.demo.household import Child, Household
from kvexporter.demo.journal_writer import DemoJournal, open_journal
from kvexporter.demo.monitoring import Monitoring
from kvexporter.demo.ports import PortTakenError, free_ports, need_port
from kvexporter.demo.tale_server import WOKEN_BY_EXPORTER
from kvexporter.options import DEFAULT_PORT
from kvexporter.sources.listening_ports import listening_ports

START_SECONDS = 60.0
"""The exporter has so long to start."""

_ATTEMPTS = 3


@dataclass(frozen=True)
class DemoOptions:
    """How the demonstration runs."""

    once: bool = False
    """End when each story has shown what it is about, instead of going on."""
    speed: float = 12.0
    """Times faster than the servers' own time."""
    port: int | None = None
    """The exporter's port; None: 9889, or the next free one."""
    linger: float = 10.0
    """Seconds between the pool's end and the agents' new beginning."""
    stories: tuple[str, ...] = STORIES
    with_prometheus: bool = False
    """Start Prometheus, Alertmanager and Grafana with the shipped files, as far as they are installed."""
    interval: float = 3.0
    """Seconds between two lines of commentary."""


class DemoError(Exception):
    """The demonstration cannot go on; the text says why."""


def run_demo(options: DemoOptions) -> int:
    """Run it until Ctrl-C, or with `once` to the stories' end. Exit status 1: the exporter missed something."""
    # The outer one: while the household ends, signals change nothing any more.
    with Ending() as ending:
        try:
            with Household() as household:
                _Demo(options, ending, household).run()
        except Ended:
            with contextlib.suppress(OSError):  # the terminal may be gone
                print("\nended", flush=True)
        except (DemoError, PortTakenError) as error:
            print(f"kvexporter demo: {error}", file=sys.stderr)
            return 1
        except OSError as error:
            print(f"kvexporter demo: {error.filename or 'a process'}: {error.strerror}", file=sys.stderr)
            return 1
    return 0


class _Demo:
    def __init__(self, options: DemoOptions, ending: Ending, household: Household) -> None:
        self._options = options
        self._ending = ending
        self._household = household
        self._news = AlertNews()

    def run(self) -> None:
        with ExitStack() as stack:
            household, options = self._household, self._options
            self._journal = open_journal(household.folder / "journal", household.environment)
            stack.callback(self._journal.close)
            ports = free_ports(len(options.stories))
            self._players = [
                player(story, port, options.speed, options.linger, household.folder, not self._journal.lacks)
                for story, port in zip(options.stories, ports, strict=True)
            ]
            self._start_exporter()
            self._monitoring = Monitoring(household, self._ending, self._port)
            told = self._monitoring.start(stack) if options.with_prometheus else []
            self._introduce(told)
            for one in self._players:
                self._ending.check()
                one.unit.start(household, self._journal)
            self._watch()

    # ---- the exporter ------------------------------------------------------------------------------------------------

    def _start_exporter(self) -> None:
        """Start it on the port that was asked for, else on the first that it gets."""
        if self._options.port is not None:
            need_port(self._options.port)
        for attempt in range(_ATTEMPTS):
            self._port = self._options.port or free_ports(1, DEFAULT_PORT)[0]
            self._url = f"http://127.0.0.1:{self._port}"
            self._exporter = self._household.spawn("exporter", self._exporter_command())
            try:
                self._wait_ready(self._exporter)
            except DemoError:
                # Somebody else may have taken the port meanwhile.
                if self._options.port is not None or attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def _exporter_command(self) -> list[str]:
        config = self._household.folder / "kvexporter.yml"
        config.write_text(exporter_config(self._players, self._journal))
        listen = ["--config.file", str(config), "--web.listen-address", f"127.0.0.1:{self._port}"]
        return [sys.executable, "-m", "kvexporter", "run", *listen]

    def _wait_ready(self, exporter: Child) -> None:
        deadline = time.monotonic() + START_SECONDS
        folder = Path(f"/proc/{exporter.process.pid}")
        # Where two demonstrations start at once, who answers at the port may be the other one's.
        while self._port not in listening_ports(folder) or _get(f"{self._url}/-/ready") is None:
            if exporter.ended or time.monotonic() > deadline:
                raise DemoError("the exporter did not start:\n" + exporter.last_words())
            self._ending.wait(0.1)

    # ---- the commentary ----------------------------------------------------------------------------------------------

    def _introduce(self, monitoring: list[str]) -> None:
        say = self._ending.say
        say(
            f"{len(self._players)} llama-server stand-ins, their time running {self._options.speed:g} times faster, "
            "and the real exporter.\n"
        )
        for one in self._players:
            say(f"  {one.story:9} {one.says}\n  {'':9} http://127.0.0.1:{one.port}  unit {one.unit.name}")
        say(
            f"\n  {self._url}/         the exporter's page: open it first\n"
            f"  {self._url}/metrics  what Prometheus scrapes\n"
            f"  {self._journal.description}"
        )
        for line in monitoring:
            say(f"  {line}")
        if self._journal.lacks:
            say(f"\nTheir logs are files here, without systemd's word on exits and restarts: {self._journal.lacks}.")
        if "agents" in self._options.stories:
            say(
                "\nHow the agents' pool runs out is a recording of a real server; all else the stand-ins say is made "
                "up in its words."
            )
        say("\nCtrl-C ends it and removes everything it made.\n")

    def _watch(self) -> None:
        """Comment until all is seen (once), or for ever."""
        started = time.monotonic()
        next_line = started
        deadlines = {one.story: started + one.first for one in self._players}
        while True:
            self._ending.wait(0.25)
            self._check_alive()
            text = _get(f"{self._url}/metrics")
            now = time.monotonic()
            if text is not None:
                readings = read_exposition(text)
                for one in self._players:
                    self._look(one, readings.get(one.story, Reading()), deadlines, now)
                if self._options.once and all(one.watch.met for one in self._players):
                    return
                if now >= next_line:
                    self._say_state(now - started, readings)
                    next_line = now + self._options.interval
            for one in self._players:
                if now > deadlines[one.story]:
                    raise DemoError(
                        f"the exporter has not shown {one.watch.wanted} of {one.story}; its last words:\n"
                        + self._exporter.last_words()
                    )

    def _look(self, one: Player, reading: Reading, deadlines: dict[str, float], now: float) -> None:
        before = one.watch.times
        for line in (*self._news.news(one.story, reading, time.time()), *one.watch.look(reading)):
            self._ending.say(line)
        if not one.watch.met:
            return
        if one.again is None:
            deadlines[one.story] = float("inf")
        elif one.watch.times > before:
            deadlines[one.story] = now + one.again
            if not self._options.once:
                self._ending.say(f"{one.story}: its clients begin anew, and it comes again; Ctrl-C ends it.\n")

    def _say_state(self, seconds: float, readings: dict[str, Reading]) -> None:
        shown = {one.story: readings.get(one.story, Reading()) for one in self._players}
        if "agents" in shown:
            self._ending.say(pool_line(seconds, shown.pop("agents")))
        if shown:
            self._ending.say(others_line(shown))

    def _check_alive(self) -> None:
        if self._exporter.ended:
            raise DemoError("the exporter ended:\n" + self._exporter.last_words())
        if self._journal.failed():
            raise DemoError("the journal's writer, systemd-journal-remote, ended")
        for one in self._players:
            if one.unit.over:
                raise DemoError(f"the stand-in of {one.story} ended:\n{one.unit.words()}")
            if WOKEN_BY_EXPORTER in one.unit.words():
                raise DemoError(f"{one.story}: {one.unit.words().strip()}, which must never happen")
        for line in self._monitoring.check():
            self._ending.say(line)


def exporter_config(players: list[Player], journal: DemoJournal) -> str:
    """The exporter's configuration for these servers."""
    parts = (
        f"  - name: {one.story}\n"
        f"    url: http://127.0.0.1:{one.port}\n"
        f"    {journal.server_config(one.unit.name)}\n"
        for one in players
    )  # fmt: skip
    return "poll_interval: 500ms\nservers:\n" + "".join(parts)


def _get(url: str) -> str | None:
    """The body of a good answer, else None."""
    try:
        answer = httpx.get(url, timeout=5, trust_env=False)
    except httpx.TransportError:
        return None
    return answer.text if answer.status_code == 200 else None
