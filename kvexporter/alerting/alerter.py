"""The pool's alerts over time: judges the servers, keeps what is on in the store, and has the receivers told."""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvexporter.alerting import alertmanager, webhook
from kvexporter.alerting.conditions import pool_alerts
from kvexporter.alerting.post import Poster
from kvexporter.alerting.receiver import Receiver, Tally, receiver_key
from kvexporter.alerting.register import Register
from kvexporter.bell import Bell
from kvexporter.config_alerting import AlertingConfig, AlertmanagerConfig, WebhookConfig
from kvexporter.snapshot import CollectorStatus, ServerSnapshot

log = logging.getLogger(__name__)

Settings = AlertmanagerConfig | WebhookConfig


class Keeping(Protocol):
    """The store's side that keeps the alerts over a restart."""

    @property
    def alerts(self) -> bytes | None: ...

    def keep_alerts(self, detail: bytes) -> None:
        """Have the alerts written in place of those written before."""


@dataclass(slots=True)
class _Running:
    settings: Settings
    receiver: Receiver
    task: asyncio.Task[None]


class Alerter:
    """Off until `configure` is given something. Needs a running loop. `clock` gives unix seconds."""

    def __init__(self, keeper: Keeping, clock: Callable[[], float] = time.time) -> None:
        self.wake = Bell()
        """There may be something to judge."""
        self._keeper = keeper
        self._clock = clock
        self._config: AlertingConfig | None = None
        self._register = Register()
        self._running: dict[str, _Running] = {}
        self._restored = False
        self._host = platform.node()

    # ---- what the daemon does with it --------------------------------------------------------------------------

    @property
    def enabled(self) -> bool:
        """Somebody is to be told."""
        return self._config is not None

    @property
    def active(self) -> bool:
        """An alert is on, or an end is not told yet."""
        return self._register.active

    def configure(self, config: AlertingConfig | None) -> None:
        """Take the configuration, the first one or a new one. Receivers that stay as they were go on undisturbed."""
        self._config = config
        wanted = _receivers(config)
        for key, running in list(self._running.items()):
            if wanted.get(key) != running.settings:
                running.task.cancel()
                del self._running[key]
        for key, settings in wanted.items():
            if key not in self._running:
                receiver = self._receiver(key, settings)
                task = asyncio.create_task(receiver.run(), name=f"alerting: {key}")
                self._running[key] = _Running(settings, receiver, task)
        self.wake.set()

    def step(self, servers: Sequence[ServerSnapshot], judged: Collection[str] | None) -> None:
        """Judge the servers and have new things told. `judged`: those whose state is of now; None: nothing is yet.

        Only to be called once the store is settled.
        """
        if self._config is None:
            return
        now = self._clock()
        if not self._restored:
            self._restore(now)
        if judged is None:
            self._register.wait(now)
            return
        held = {server.name: pool_alerts(server, now) for server in servers if server.name in judged}
        changed = self._register.judge(servers, held, self._config.labels, now, self._host)
        if changed:
            for running in self._running.values():
                running.receiver.wake.set()
        if self._register.forget(self._running, now) or changed:
            self._keep()

    async def aclose(self) -> None:
        """Stop. What is on stays on at the receivers: whoever starts next goes on with it, or it ends by itself."""
        tasks = [running.task for running in self._running.values()]
        self._running.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- what is shown -----------------------------------------------------------------------------------------

    @property
    def status(self) -> CollectorStatus | None:
        """How the last posts went, over all receivers; None while alerting is off."""
        if self._config is None:
            return None
        problems = [f"{key}: {tally.problem}" for key, tally in self._tallies() if tally.problem is not None]
        seconds = max((tally.seconds for _, tally in self._tallies()), default=0.0)
        return CollectorStatus(not problems, seconds, "; ".join(problems) or None)

    def tallies(self, kind: type[AlertmanagerConfig] | type[WebhookConfig]) -> Mapping[str, Tally]:
        """Name → what became of its alerts, of one kind of receivers."""
        return {
            running.settings.name: running.receiver.tally
            for running in self._running.values()
            if isinstance(running.settings, kind)
        }

    # ---- inside ------------------------------------------------------------------------------------------------

    def _tallies(self) -> list[tuple[str, Tally]]:
        return [(key, running.receiver.tally) for key, running in self._running.items()]

    def _receiver(self, key: str, settings: Settings) -> Receiver:
        managers = isinstance(settings, AlertmanagerConfig)
        url = settings.url
        if isinstance(settings, AlertmanagerConfig) and url is not None:
            url += alertmanager.PATH
        poster = Poster(
            url,
            url_file=settings.url_file if isinstance(settings, WebhookConfig) else None,
            basic_auth=settings.basic_auth,
            tls=settings.tls,
            timeout=settings.timeout,
        )
        form = alertmanager if managers else webhook
        return Receiver(key, poster, form.is_due, form.body, self._register, self._keep, self._clock)

    def _restore(self, now: float) -> None:
        self._restored = True
        detail = self._keeper.alerts
        if detail is None:
            return
        try:
            self._register.restore(detail, now)
        except ValueError as error:
            log.error("the stored alerts cannot be read and are forgotten: %s", error)
        for running in self._running.values():
            running.receiver.wake.set()

    def _keep(self) -> None:
        self._keeper.keep_alerts(self._register.dump())


def _receivers(config: AlertingConfig | None) -> dict[str, Settings]:
    if config is None:
        return {}
    found: dict[str, Settings] = {receiver_key("alertmanager", one.name): one for one in config.alertmanagers}
    found.update({receiver_key("webhook", one.name): one for one in config.webhooks})
    return found
