"""A llama-server stand-in that lives through a tale until it is stopped: it logs, answers, sleeps and wakes.

python -m kvexporter.demo.tale_server --tale sleeping --port 8080 --speed 12
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

from kvexporter.demo import dialect
from kvexporter.demo.serving import LOADING, quiet_server, stopped_by_signals, wait_stopped
from kvexporter.demo.story import line_for_port
from kvexporter.demo.tales import TALES, Tale, load_tale

WOKEN_BY_EXPORTER = "woken by kvexporter"
"""Said on stderr when the exporter does what it must never do."""


class TaleServer:
    """One server that lives through its tale. `now` gives the tale's time; `say` prints a line of its log."""

    def __init__(self, tale: Tale, now: Callable[[], float], say: Callable[[str], None]) -> None:
        self._tale = tale
        self._now = now
        self._say = say
        self.sleeping = False
        self._woken = False
        """By a question, so that the tale's own waking is passed over."""

    def tell(self, text: str) -> None:
        """The tale's next line."""
        if text == dialect.FALLS_ASLEEP[0]:
            self.sleeping, self._woken = True, False
        elif text == dialect.WAKES_UP[0]:
            self.sleeping = False
        if self._woken and text in self._waking:
            return
        self._say(text)

    def _wake(self) -> None:
        # As every build: /slots waits in the queue of tasks, which a sleeping server loads its model to work on.
        for text in self._waking:
            self._say(text)
        self.sleeping, self._woken = False, True

    @property
    def _waking(self) -> list[str]:
        shape = self._tale.shape
        loading = dialect.loading(shape.model, shape.slots, shape.slot_context, shape.unified)
        return [*dialect.WAKES_UP, *loading]

    def app(self) -> Starlette:
        """Its endpoints. Neither /health nor /props wakes it, and on this build /metrics does not either."""

        def endpoint(answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
            def handle(request: Request) -> Response:
                return answer(request) if self._now() >= self._tale.ready_at else JSONResponse(LOADING, 503)

            return handle

        def metrics(_: Request) -> Response:
            return PlainTextResponse(self._tale.metrics(self._now()), media_type="text/plain; version=0.0.4")

        return Starlette(
            routes=[
                Route("/health", endpoint(lambda _: JSONResponse({"status": "ok"}))),
                Route("/props", endpoint(lambda _: JSONResponse(self._tale.props(self.sleeping)))),
                Route("/slots", endpoint(self._slots)),
                Route("/metrics", endpoint(metrics)),
            ]
        )

    def _slots(self, request: Request) -> Response:
        if self.sleeping:
            who = request.headers.get("user-agent", "")
            if who.startswith("kvexporter/"):
                print(f"{WOKEN_BY_EXPORTER}, which asked for /slots", file=sys.stderr, flush=True)
            self._wake()
            return JSONResponse(self._tale.unused_slots)
        return JSONResponse(self._tale.slots(self._now()))


async def play(tale: Tale, port: int, speed: float) -> None:
    """Serve and log a tale until a signal comes; the last line is the server's goodbye."""
    started = time.monotonic()

    def now() -> float:
        return (time.monotonic() - started) * speed

    def say(text: str) -> None:
        print(line_for_port(dialect.stamped(now(), text), port), flush=True)

    server = TaleServer(tale, now, say)
    stopped = stopped_by_signals()
    http = quiet_server(server.app(), port)
    serving = asyncio.create_task(http.serve())
    for at, text in tale.lines():
        if await wait_stopped(stopped, at / speed - (time.monotonic() - started)):
            break
        server.tell(text)
    say(dialect.GOODBYE)
    http.should_exit = True
    await serving


def main(arguments: list[str] | None = None) -> int:
    """Play a tale until it is stopped."""
    parser = argparse.ArgumentParser(prog="python -m kvexporter.demo.tale_server", description=__doc__)
    parser.add_argument("--tale", choices=sorted(TALES), required=True)
    parser.add_argument("--port", type=int, required=True, help="port of 127.0.0.1 to answer on")
    parser.add_argument("--speed", type=float, default=1.0, help="times faster than its own time (default 1)")
    parser.add_argument("--linger", type=float, default=0.0, help="seconds between the pool's end and the next round")
    options = parser.parse_args(arguments)
    if options.speed <= 0:
        parser.error("--speed must be above 0")
    tale = load_tale(options.tale, options.linger * options.speed)
    asyncio.run(play(tale, options.port, min(options.speed, tale.fastest)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
