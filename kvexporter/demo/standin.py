"""A llama-server stand-in: a process that logs and answers as the recorded server did, in the recording's own time.

python -m kvexporter.demo.standin --port 8080 --speed 12
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from kvexporter.demo.serving import LOADING, quiet_server, stopped_by_signals, wait_stopped
from kvexporter.demo.story import Story, line_for_port, load_story


def create_app(story: Story, now: Callable[[], float]) -> Starlette:
    """The endpoints of the recorded server; `now` gives seconds since the recording's first line."""

    def endpoint(answer: Callable[[], Response]) -> Callable[[Request], Response]:
        def handle(_: Request) -> Response:
            return answer() if now() >= story.ready_at else JSONResponse(LOADING, 503)

        return handle

    def metrics() -> Response:
        return PlainTextResponse(story.answer_at(now()).metrics, media_type="text/plain; version=0.0.4")

    return Starlette(
        routes=[
            Route("/health", endpoint(lambda: JSONResponse({"status": "ok"}))),
            Route("/props", endpoint(lambda: JSONResponse(story.props()))),
            Route("/slots", endpoint(lambda: JSONResponse(story.answer_at(now()).slots))),
            Route("/metrics", endpoint(metrics)),
        ]
    )


async def play(story: Story, port: int, speed: float, linger: float) -> None:
    """Serve and log the story once, and return `linger` seconds after its last event.

    The recording's last line is the server's goodbye: it is printed after `linger`.
    """
    started = time.monotonic()

    def now() -> float:
        return (time.monotonic() - started) * speed

    # The recorded server's access log is part of the recording, if it wrote one.
    server = quiet_server(create_app(story, now), port)
    stopped = stopped_by_signals()
    serving = asyncio.create_task(server.serve())
    goodbye_at, goodbye = story.lines[-1]
    for at, text in story.lines[:-1]:
        if await wait_stopped(stopped, at / speed - (time.monotonic() - started)):
            break
        print(line_for_port(text, port), flush=True)
    await wait_stopped(stopped, linger + goodbye_at / speed - (time.monotonic() - started))
    print(goodbye, flush=True)
    server.should_exit = True
    await serving


def main(arguments: list[str] | None = None) -> int:
    """Play the story once."""
    parser = argparse.ArgumentParser(prog="python -m kvexporter.demo.standin", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="port of 127.0.0.1 to answer on")
    parser.add_argument("--speed", type=float, default=1.0, help="times faster than the recording (default 1)")
    parser.add_argument("--linger", type=float, default=0.0, help="seconds to go on answering after the last event")
    options = parser.parse_args(arguments)
    if options.speed <= 0:
        parser.error("--speed must be above 0")
    asyncio.run(play(load_story(), options.port, options.speed, options.linger))
    return 0


if __name__ == "__main__":
    sys.exit(main())
