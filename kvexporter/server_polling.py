"""The pollers of all watched servers, and what each is told of its server without asking it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kvexporter.facts import Endpoint, PollReason
from kvexporter.intake import take_answer
from kvexporter.llama.launch import LaunchOptions
from kvexporter.poller import ServerPoller
from kvexporter.polling import PollPolicy, ServerHints
from kvexporter.server import Server
from kvexporter.sources.llama_api import ApiAnswer, LlamaApi
from kvexporter.watched import Watched


class ServerPolling:
    """Starts and stops pollers. `log_is_read` says whether a server's log is; `clock` gives unix seconds."""

    def __init__(self, log_is_read: Callable[[Watched], bool], clock: Callable[[], float]) -> None:
        self._log_is_read = log_is_read
        self._clock = clock
        self._closing: set[asyncio.Task[None]] = set()

    def start(self, watched: Watched) -> None:
        """Poll the server at its target's address from now on."""
        self.stop(watched)
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

    def stop(self, watched: Watched) -> None:
        """Poll the server no more."""
        poller, api = watched.poller, watched.api
        watched.poller = watched.api = None
        if poller is not None and api is not None:
            closing = asyncio.create_task(_close(poller, api))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Wait until what was stopped has ended."""
        await asyncio.gather(*self._closing)

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


def deliver(model: Server, endpoint: Endpoint, answer: ApiAnswer) -> PollReason | None:
    """Give one answer to the model; the reason if its body was not what it should be."""
    if answer.reason is not None:
        model.poll_failed(endpoint, answer.reason, answer.answered_at)
        return None
    return take_answer(model, endpoint, answer.body, answer.answered_at, answer.sent_at)


def _supported(option: bool | None, told: bool | None) -> bool | None:
    return told if told is not None else option


def _has_metrics(options: LaunchOptions | None) -> bool | None:
    """`/metrics` is off unless it was asked for, on the command line or in an environment that may be unreadable."""
    if options is None or (options.metrics is None and not options.environment_known):
        return None
    return bool(options.metrics)


async def _close(poller: ServerPoller, api: LlamaApi) -> None:
    await poller.aclose()
    await api.aclose()
