"""The daemon: one event loop on which every source feeds its models and every view shows them."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial

from kvexporter import __version__
from kvexporter.alerting.alerter import Alerter
from kvexporter.aside import Aside
from kvexporter.beginning_anew import ANEW_SECONDS, Decision, begin_anew, decide, heed_signals, hold_signals
from kvexporter.bell import Bell
from kvexporter.config import Config, ConfigError, config_of_one, load_config
from kvexporter.config_alerting import AlertmanagerConfig, WebhookConfig
from kvexporter.facts import FoundProcess
from kvexporter.feed import selection_of
from kvexporter.fleet import Fleet
from kvexporter.gpu_worker import GpuWorker
from kvexporter.keeper import Keeper
from kvexporter.options import RunOptions
from kvexporter.paces import until_next
from kvexporter.reading_at_start import Ended, read_at_start
from kvexporter.signals_at_start import take_hang_up
from kvexporter.snapshot import CollectorStatus, ExporterSnapshot
from kvexporter.sources.discovery import Discovery
from kvexporter.sources.log_selection import Selection, StdinSelection
from kvexporter.sources.service_manager import ServiceManager
from kvexporter.targets import gone_targets, plan_targets
from kvexporter.web.app import create_app
from kvexporter.web.live_config import LiveWebConfig
from kvexporter.web.serve import ListenError, WebServer, open_sockets

log = logging.getLogger(__name__)

DISCOVERY_SECONDS = 15.0
"""Between two looks for new processes, where a server is missed, begins or works; else IDLE_SECONDS."""
DISCOVERY_DEADLINE = 10.0
CONFIG_SECONDS = 10.0
"""How long the configuration is waited for: it may be on a network's disk."""
SEARCH_SECONDS = 60.0
"""Between two looks at all processes of the host; in between only new ones are looked at."""
QUIET_SEARCH_SECONDS = 300.0
"""The same while all servers that were found are calm and no process was started."""
SOON_SECONDS = 0.5
"""A new process is looked for this long after the log or the process table spoke of one."""
PROCESS_SECONDS = 2.0
JOURNAL_CHECK_SECONDS = 15.0
"""While a server works or a journal is not read; else IDLE_SECONDS."""
START_SECONDS = 20.0
"""Systemd hears of the start after so long at the latest: a boot must not wait for a backlog or a dead disk, and what
has not started within 90 s is killed."""
BUSY_JOURNAL_SECONDS = 0.5
"""Journald announces lines up to half a second late, and writes of others not at all."""
SHORT_SECONDS = 0.25
"""Between two rounds for what was heard, or has ended."""
JOURNAL_SECONDS = 1.0
LATELY_SECONDS = 15.0
"""So long after something was heard more is expected."""
ALERT_SECONDS = 0.5
"""Between two looks at what alerts hold, while a server works or an alert is on."""
QUIET_ALERT_SECONDS = 15.0
"""The same at any other time."""
TICK_SECONDS = 1.0
IDLE_SECONDS = 30.0
"""Between two rounds of these steps while nothing happens: each wakes a processor that may sleep otherwise, and all of
them together do it once. The log wakes them, and a process's end does."""
GPU_SECONDS = 5.0
QUIET_GPU_SECONDS = 15.0
NO_GPU_SECONDS = 300.0
"""Between two looks whether a GPU has come; one is also taken when a server has come."""
HANGING_SECONDS = 90.0
"""A loop that has not turned for so long does not turn."""
REMEMBER_SECONDS = 86_400.0
"""A unit that wrote nothing for so long before the start is not missed."""
EXIT_RESTART = 75
"""Exit status when only a new process helps (sysexits' EX_TEMPFAIL); systemd starts one on any failure."""


class Daemon:
    """Runs until told to stop. `clock` gives unix seconds."""

    def __init__(
        self,
        options: RunOptions,
        config: Config,
        web_config: LiveWebConfig | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._config = config
        self._web_config = web_config
        self._clock = clock
        self._keeper = Keeper(options.storage_path)
        self._fleet = Fleet(self._look_soon, self._keeper, clock)
        self._alerter = Alerter(self._keeper, clock)
        self._manager = ServiceManager()
        self._stop = asyncio.Event()
        self._look = asyncio.Event()
        self._processes_found = Discovery()
        self._discoverer: Aside[list[FoundProcess]] = Aside("looking for processes")
        self._config_reader: Aside[Config] = Aside("reading the configuration")
        self._reading = asyncio.Lock()
        self._found: list[FoundProcess] | None = None
        """What was found last, and is watched; None if the next finding is to be applied whatever it is."""
        self._searched = -math.inf
        """When all processes were looked at last (monotonic)."""
        self._started = True
        """Some process was started since then."""
        self._gpus = GpuWorker()
        self._settling = Bell()
        """A server was found whose memory at its start is to be measured."""
        self._ready = False
        self._start_told = False
        """Systemd knows that the service answers, though journals are still being read."""
        self._began = time.monotonic()
        self._collectors: dict[str, CollectorStatus] = {}
        self._reload_successful: bool | None = None
        self._reload_time: float | None = None
        self._exit_status = 0
        self._told_to_end = False
        """By a signal."""
        self._decided: Decision | None = None
        """What was said last of a store that answered too late."""
        self._recalled = False
        """What was watched by an earlier exporter was looked up."""
        self._heard_at = -math.inf
        """When a journal last had something to say (monotonic)."""
        self._turned = 0.0
        """When the loop last turned (monotonic)."""

    async def run(self) -> int:
        """Run until a signal; the exit status."""
        loop = asyncio.get_running_loop()
        try:
            # First of all: with the address of another exporter nothing must be begun that is its work.
            sockets = open_sockets(self._options.listen_addresses)
        except ListenError as error:
            log.error("%s", error)
            return 1
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, self._reload_soon)
        heed_signals()
        if take_hang_up():
            self._reload_soon()
        self._keeper.start()
        self._alerter.configure(self._config.alerting)
        await self._discover()
        app = create_app(
            self.snapshot,
            ready=lambda: self._ready,
            healthy=self._healthy,
            reload=self.reload if self._options.enable_lifecycle else None,
            telemetry_path=self._options.telemetry_path,
            web_config=self._web_config,
        )
        server = WebServer(app, sockets, self._web_config)
        await server.start()
        tasks = [
            asyncio.create_task(_forever(step), name=name)
            for name, step in (
                ("tick", self._tick),
                ("process", self._processes),
                ("discovery", self._discovery),
                ("headers", self._headers),
                ("gpu", self._read_gpus),
                ("journal", self._journals),
                ("journal check", self._check_journals),
                ("alerting", self._alerts),
            )
        ]
        await self._stop.wait()
        if not self.begins_anew:
            self._manager.stopping()
            log.info("stopping")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.aclose()
        self._fleet.keep(at_once=True)
        await self._alerter.aclose()
        await self._fleet.aclose()
        await self._gpus.aclose()
        self._keeper.close()
        if self.begins_anew:
            hold_signals()
            await asyncio.sleep(0.01)  # what came before is told to the loop
            self._manager.alive()  # the new process has all of its time
        return self._exit_status

    @property
    def begins_anew(self) -> bool:
        """Another process is to take this one's place once it has shut down."""
        return self._decided == "now" and not self._told_to_end and self._exit_status == 0

    def snapshot(self) -> ExporterSnapshot:
        """Everything as it is now; waits for nothing."""
        now = self._clock()
        statuses = [feed.follower.status for feed in self._fleet.feeds]
        collectors = dict(self._collectors)
        if statuses:
            failing = [status for status in statuses if not status.success]
            collectors["journal"] = CollectorStatus(
                not failing, max(status.duration for status in statuses), failing[0].reason if failing else None
            )
        if self._options.storage_path is not None:
            collectors["store"] = CollectorStatus(self._keeper.problem is None, 0.0, self._keeper.problem)
        if (alerting := self._alerter.status) is not None:
            collectors["alerting"] = alerting
        managers, hooks = self._alerter.tallies(AlertmanagerConfig), self._alerter.tallies(WebhookConfig)
        lags = [feed.follower.lag for feed in self._fleet.feeds if feed.follower.lag is not None]
        return ExporterSnapshot(
            at=now,
            servers=self._fleet.snapshots(now),
            collectors=collectors,
            journal_lines=self._fleet.journal_lines(),
            journal_lag=max(lags) if lags else None,
            config_reload_successful=self._reload_successful,
            config_reload_time=self._reload_time,
            store_errors=self._keeper.failures,
            dropped=self._fleet.left_out(),
            journal_gaps=self._fleet.journal_gaps(),
            gpus=self._gpus.report.gpus,
            unified_memory_total=self._gpus.report.unified_total,
            unified_memory_available=self._gpus.report.unified_available,
            alerts_sent={name: tally.sent for name, tally in managers.items()},
            alert_send_failures={name: tally.failures for name, tally in managers.items()},
            webhook_alerts_sent={name: tally.sent for name, tally in hooks.items()},
            webhook_failures={name: tally.failures for name, tally in hooks.items()},
        )

    async def reload(self) -> str | None:
        """Read the configuration again; the error if it cannot be used, and then the old one stays."""
        if self._options.config_file is None:
            return "there is no configuration file: none was given with --config.file"
        started = self._ready or self._start_told
        if started:  # or systemd would take the end of this for that of the start
            self._manager.reloading()
        try:
            async with self._reading:  # who asks while one is under way may have changed the file since
                config = await self._config_reader.call(partial(load_config, self._options.config_file), CONFIG_SECONDS)
        except (ConfigError, TimeoutError) as error:
            self._reload_successful = False
            log.error("configuration not reloaded, the old one stays: %s", error)
            return str(error)
        finally:
            if started:
                self._manager.ready(self._status())
        self._config = config
        self._reload_successful, self._reload_time = True, self._clock()
        for warning in config.warnings:
            log.warning("%s", warning)
        log.info("configuration reloaded: %s", self._options.config_file)
        self._alerter.configure(config.alerting)
        await self._discover()
        return None

    # ---- the steps ---------------------------------------------------------------------------------------------

    async def _tick(self) -> float:
        self._turned = time.monotonic()
        self._fleet.tick(self._clock())
        if not self._ready and self._keeper.settled and self._fleet.caught_up:
            self._ready = True
            self._manager.ready(self._status())
            log.info("ready: %s", self._status())
        elif not self._ready and not self._start_told and self._turned - self._began >= START_SECONDS:
            self._start_told = True
            self._manager.ready(f"{self._status()}; not all of it has been read yet")
        pause = IDLE_SECONDS if self._ready and not self._fleet.busy else TICK_SECONDS
        if self._manager.watchdog_seconds is not None:
            self._manager.alive()
            return min(pause, self._manager.watchdog_seconds / 2)
        return pause

    async def _journals(self) -> float:
        if self._fleet.heard.is_set():
            self._heard_at = time.monotonic()
            self._fleet.heard.clear()
            self._alerter.wake.set()
        self._keeper.step()
        if self._keeper.fatal is not None:
            log.error("%s", self._keeper.fatal)
            self._exit_status = 1
            self._stop.set()
        if self._keeper.late:
            self._store_answered_late()
        if self._keeper.settled and not self._recalled:
            self._recalled = True
            self._fleet.show_down(gone_targets(self._config, self._stored_journals()))
        lately = not self._ready or time.monotonic() - self._heard_at < LATELY_SECONDS
        pause = IDLE_SECONDS if self._fleet.reads_well else JOURNAL_CHECK_SECONDS
        if lately:
            pause = JOURNAL_SECONDS
        self._fleet.read_journals(BUSY_JOURNAL_SECONDS if self._fleet.busy else pause)
        self._fleet.keep()
        # What is heard is written soon; the rest of the time this looks after journals that cannot be read.
        return SHORT_SECONDS if await self._fleet.heard.wait(_until_next(pause)) else 0.0

    async def _alerts(self) -> float:
        self._alerter.wake.clear()
        if self._alerter.enabled and self._keeper.settled:
            servers = self._fleet.snapshots(self._clock())
            self._alerter.step(servers, self._fleet.up_to_date() if self._ready else None)
        if self._alerter.enabled and (self._fleet.busy or self._alerter.active or not self._ready):
            return ALERT_SECONDS
        # A server without a log begins to work unheard.
        pause = IDLE_SECONDS
        if self._alerter.enabled:
            pause = TICK_SECONDS if self._fleet.watches_processes else QUIET_ALERT_SECONDS
        return ALERT_SECONDS if await self._alerter.wake.wait(_until_next(pause)) else 0.0

    async def _check_journals(self) -> float:
        for feed in list(self._fleet.feeds):
            await feed.follower.check()
        return IDLE_SECONDS if self._fleet.reads_well and not self._fleet.busy else JOURNAL_CHECK_SECONDS

    async def _processes(self) -> float:
        began = time.perf_counter()
        self._fleet.ended.clear()
        for watched in list(self._fleet.watched.values()):
            if not self._fleet.look_at_process(watched, self._clock()):
                self._look_soon()
            await asyncio.sleep(0)
        self._collectors["process"] = CollectorStatus(True, time.perf_counter() - began)
        pause = PROCESS_SECONDS if self._fleet.watches_processes or self._fleet.settling else IDLE_SECONDS
        return SHORT_SECONDS if await self._fleet.ended.wait(_until_next(pause)) else 0.0

    async def _headers(self) -> float:
        await self._fleet.read_headers()
        return PROCESS_SECONDS if self._fleet.busy or not self._ready else IDLE_SECONDS

    async def _read_gpus(self) -> float:
        began = time.perf_counter()
        report = await self._gpus.read(self._fleet.pids())
        self._collectors["gpu"] = CollectorStatus(
            report.reason is None,
            time.perf_counter() - began,
            f"{report.reason}: {report.detail}" if report.reason is not None else None,
        )
        self._fleet.gpus_seen(report.gpus)
        if report.restart_wanted and self._manager.present:
            log.warning("ending, so that systemd starts a new process")
            self._exit_status = EXIT_RESTART
            self._stop.set()
        if not report.gpus and report.reason == "no_gpu":
            self._settling.clear()
            await self._settling.wait(_until_next(NO_GPU_SECONDS))
            return 0.0
        if self._fleet.busy or self._fleet.settling:
            return GPU_SECONDS
        self._settling.clear()
        return GPU_SECONDS if await self._settling.wait(_until_next(QUIET_GPU_SECONDS)) else 0.0

    async def _discovery(self) -> float:
        asked = False
        pause = IDLE_SECONDS if self._ready and self._fleet.calm else DISCOVERY_SECONDS
        try:
            async with asyncio.timeout(_until_next(pause)):
                await self._look.wait()
                asked = True
                self._look.clear()
                await asyncio.sleep(SOON_SECONDS)
        except TimeoutError:
            pass
        news = self._discoverer.under_way or self._processes_found.news()
        self._started = self._started or news
        quiet = self._fleet.calm and not self._started
        age = time.monotonic() - self._searched
        thorough = asked or self._found is None or age >= (QUIET_SEARCH_SECONDS if quiet else SEARCH_SECONDS)
        if thorough or news:
            await self._discover(thorough=thorough)
        return 0.0

    async def _discover(self, *, thorough: bool = True) -> None:
        """Look which llama-servers there are and watch them. With thousands of processes that takes a while."""
        began = time.perf_counter()
        if thorough:
            self._searched, self._started = time.monotonic(), False
        try:
            found = await self._discoverer.call(
                partial(self._processes_found.find, thorough=thorough), DISCOVERY_DEADLINE
            )
        except (OSError, TimeoutError) as error:
            self._collectors["discovery"] = CollectorStatus(False, time.perf_counter() - began, str(error))
            self._found = None  # a configuration that was read anew still waits to be applied
            if not self._fleet.watched:
                self._fleet.apply(plan_targets(self._config, ()))  # what is configured needs no discovery
            return
        self._collectors["discovery"] = CollectorStatus(True, time.perf_counter() - began)
        if not thorough and found == self._found:
            return  # what is watched is watched already
        self._found = found
        self._fleet.apply(plan_targets(self._config, found))
        if self._fleet.settling:
            self._settling.set()

    def _stored_journals(self) -> Iterator[tuple[Selection, list[str]]]:
        """The journals that an earlier exporter read until lately, and the servers that wrote into them."""
        for key, servers in self._keeper.stored(self._clock() - REMEMBER_SECONDS):
            selection = selection_of(key)
            if selection is not None:
                yield selection, servers

    def _store_answered_late(self) -> None:
        age = time.monotonic() - self._began
        decided = decide(age, stdin=any(isinstance(feed.selection, StdinSelection) for feed in self._fleet.feeds))
        if decided == self._decided:
            return
        self._decided = decided
        if decided == "now":
            log.warning("the store can be used now: kvexporter begins anew, and counts go on from what it holds")
            self._manager.status("beginning anew: the store can be used now")
            self._stop.set()
        elif decided == "later":
            log.warning(
                "the store can be used now: kvexporter begins anew in %.0f s, to go on from what it holds",
                ANEW_SECONDS - age,
            )
        else:
            self._keeper.let_go()
            log.warning(
                "the store can be used now, but a new process would lose what came over standard input: "
                "nothing is kept until you start kvexporter again"
            )

    def _end(self) -> None:
        self._told_to_end = True
        self._stop.set()

    def _look_soon(self) -> None:
        self._look.set()

    def _reload_soon(self) -> None:
        self._reloading = asyncio.create_task(self.reload())

    def _healthy(self) -> bool:
        return time.monotonic() - self._turned < HANGING_SECONDS

    def _status(self) -> str:
        names = sorted(self._fleet.watched)
        if not names:
            return "no llama-server found yet"
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        return f"watching {shown}"


async def _forever(step: Callable[[], object]) -> None:
    """Repeat a step; what goes wrong in one round is said and the next one comes."""
    while True:
        pause = 1.0
        try:
            result = step()
            pause = await result  # type: ignore[misc]
        except Exception:
            log.exception("unexpected error; going on")
        await asyncio.sleep(_until_next(pause))


def _until_next(interval: float) -> float:
    return until_next(interval, time.monotonic())


def run_daemon(options: RunOptions) -> int:
    """Run the daemon until a signal; the exit status."""
    config, web_config = Config(), None
    path, web_path = options.config_file, options.web_config_file
    try:
        if path is not None:
            config = read_at_start(partial(load_config, path), _say_waiting)
        if web_path is not None:
            web_config = read_at_start(partial(LiveWebConfig, web_path), _say_waiting)
    except Ended:
        log.info("stopping")
        return 0
    if options.one_server is not None:
        config = config_of_one(options.one_server.name, options.one_server.url, options.one_server.log_file)
    for warning in config.warnings:
        log.warning("%s", warning)
    log.info("kvexporter %s, %s", __version__, f"configuration: {path}" if path else "no configuration file")
    status, begins_anew = asyncio.run(_run(options, config, web_config))
    if begins_anew:
        try:
            begin_anew()
        except OSError as error:
            log.error("kvexporter cannot begin anew (%s): it ends, to be started again", error)
            return EXIT_RESTART
    return status


def _say_waiting(text: str) -> None:
    log.warning("%s", text)
    ServiceManager().status(text)


async def _run(options: RunOptions, config: Config, web_config: LiveWebConfig | None) -> tuple[int, bool]:
    daemon = Daemon(options, config, web_config)
    return await daemon.run(), daemon.begins_anew
