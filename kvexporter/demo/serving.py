"""What the stand-ins have in common: how they answer over HTTP, and how they stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
"""What every endpoint answers while the model is loaded, with status 503."""


class _Server(uvicorn.Server):
    """The signals are the stand-in's: it ends with its goodbye line."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def quiet_server(app: Starlette, port: int) -> uvicorn.Server:
    """A server on 127.0.0.1 that logs nothing: its log is the story's."""
    config = uvicorn.Config(app, port=port, log_level="critical", access_log=False, lifespan="off")
    # A client that keeps an answer open must not keep the stand-in.
    config.timeout_graceful_shutdown = 2
    return _Server(config)


def stopped_by_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    return stopped


async def wait_stopped(stopped: asyncio.Event, seconds: float) -> bool:
    """Wait so long at most; whether the stop came."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopped.wait(), max(0.0, seconds))
    return stopped.is_set()
