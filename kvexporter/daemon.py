"""The daemon: one event loop on which every source feeds its models and every view shows them."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path

from kvexporter import __version__
from kvexporter.config import Config, ConfigError, load_config
from kvexporter.fleet import Fleet
from kvexporter.options import RunOptions
from kvexporter.snapshot import CollectorStatus, ExporterSnapshot
from kvexporter.sources.discovery import discover
from kvexporter.sources.service_manager import ServiceManager
from kvexporter.targets import plan_targets
from kvexporter.web.app import create_app
from kvexporter.web.serve import ListenError, serve

log = logging.getLogger(__name__)

DISCOVERY_SECONDS = 10.0
SOON_SECONDS = 0.5
"""A new process is looked for this long after the log or the process table spoke of one."""
PROCESS_SECONDS = 2.0
JOURNAL_CHECK_SECONDS = 5.0
BUSY_JOURNAL_SECONDS = 0.1
IDLE_JOURNAL_SECONDS = 1.0
TICK_SECONDS = 1.0


class Daemon:
    """Runs until told to stop. `clock` gives unix seconds."""

    def __init__(self, options: RunOptions, config: Config, clock: Callable[[], float] = time.time) -> None:
        self._options = options
        self._config = config
        self._clock = clock
        self._fleet = Fleet(self._look_soon, clock)
        self._manager = ServiceManager()
        self._stop = asyncio.Event()
        self._look = asyncio.Event()
        self._ready = False
        self._collectors: dict[str, CollectorStatus] = {}
        self._reload_successful: bool | None = None
        self._reload_time: float | None = None
        self._turned = 0.0
        """When the loop last turned (monotonic)."""

    async def run(self) -> int:
        """Run until a signal; the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload_soon)
        self._discover()
        app = create_app(
            self.snapshot,
            ready=lambda: self._ready,
            healthy=self._healthy,
            reload=self.reload if self._options.enable_lifecycle else None,
            telemetry_path=self._options.telemetry_path,
        )
        try:
            server = await serve(app, self._options.listen_addresses)
        except ListenError as error:
            log.error("%s", error)
            return 1
        tasks = [
            asyncio.create_task(_forever(step), name=name)
            for name, step in (
                ("tick", self._tick),
                ("process", self._processes),
                ("discovery", self._discovery),
                ("journal", self._journals),
                ("journal check", self._check_journals),
            )
        ]
        await self._stop.wait()
        self._manager.stopping()
        log.info("stopping")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.aclose()
        await self._fleet.aclose()
        return 0

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
        lags = [feed.follower.lag for feed in self._fleet.feeds if feed.follower.lag is not None]
        return ExporterSnapshot(
            at=now,
            servers=self._fleet.snapshots(now),
            collectors=collectors,
            journal_lines=self._fleet.journal_lines(),
            journal_lag=max(lags) if lags else None,
            config_reload_successful=self._reload_successful,
            config_reload_time=self._reload_time,
        )

    async def reload(self) -> str | None:
        """Read the configuration again; the error if it cannot be used, and then the old one stays."""
        if self._options.config_file is None:
            return "there is no configuration file: none was given with --config.file"
        self._manager.reloading()
        try:
            config = load_config(self._options.config_file)
        except ConfigError as error:
            self._reload_successful = False
            log.error("configuration not reloaded, the old one stays: %s", error)
            return str(error)
        finally:
            self._manager.ready(self._status())
        self._config = config
        self._reload_successful, self._reload_time = True, self._clock()
        for warning in config.warnings:
            log.warning("%s", warning)
        log.info("configuration reloaded")
        self._discover()
        return None

    # ---- the steps ---------------------------------------------------------------------------------------------

    async def _tick(self) -> float:
        self._turned = time.monotonic()
        self._fleet.tick(self._clock())
        if not self._ready and self._fleet.caught_up:
            self._ready = True
            self._manager.ready(self._status())
            log.info("ready: %s", self._status())
        if self._manager.watchdog_seconds is not None:
            self._manager.alive()
            return min(TICK_SECONDS, self._manager.watchdog_seconds / 3)
        return TICK_SECONDS

    async def _journals(self) -> float:
        for feed in self._fleet.feeds:
            feed.follower.poke()
        return BUSY_JOURNAL_SECONDS if self._fleet.busy else IDLE_JOURNAL_SECONDS

    async def _check_journals(self) -> float:
        for feed in self._fleet.feeds:
            feed.follower.check()
        return JOURNAL_CHECK_SECONDS

    async def _processes(self) -> float:
        began = time.perf_counter()
        for watched in self._fleet.watched.values():
            if not self._fleet.look_at_process(watched, self._clock()):
                self._look_soon()
        self._collectors["process"] = CollectorStatus(True, time.perf_counter() - began)
        return PROCESS_SECONDS

    async def _discovery(self) -> float:
        try:
            async with asyncio.timeout(DISCOVERY_SECONDS):
                await self._look.wait()
                self._look.clear()
                await asyncio.sleep(SOON_SECONDS)
        except TimeoutError:
            pass
        self._discover()
        return 0.0

    def _discover(self) -> None:
        """Look which llama-servers there are and watch them."""
        began = time.perf_counter()
        try:
            found = discover()
        except OSError as error:
            self._collectors["discovery"] = CollectorStatus(False, time.perf_counter() - began, str(error))
            return
        self._collectors["discovery"] = CollectorStatus(True, time.perf_counter() - began)
        self._fleet.apply(plan_targets(self._config, found))

    def _look_soon(self) -> None:
        self._look.set()

    def _reload_soon(self) -> None:
        self._reloading = asyncio.create_task(self.reload())

    def _healthy(self) -> bool:
        return time.monotonic() - self._turned < 30.0

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
        await asyncio.sleep(pause)


def run_daemon(options: RunOptions) -> int:
    """Run the daemon until a signal; the exit status."""
    config = Config()
    if options.config_file is not None:
        config = load_config(Path(options.config_file))
    for warning in config.warnings:
        log.warning("%s", warning)
    log.info("kvexporter %s", __version__)
    return asyncio.run(_run(options, config))


async def _run(options: RunOptions, config: Config) -> int:
    return await Daemon(options, config).run()
