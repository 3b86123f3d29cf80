"""The polling task against real servers: independence, waking, restarts, and what is said of failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kvexporter.facts import Endpoint, PollReason
from kvexporter.poller import ServerPoller
from kvexporter.polling import LAUNCH_SECONDS, PollPolicy, ServerHints
from kvexporter.sources.llama_api import DEADLINES, ApiAnswer, ApiTarget, LlamaApi
from tests.support import http_servers as web
from tests.support.asking import run
from tests.support.http_servers import HttpServer, Request, answering, by_path, serving, until

NEVER = 3600.0
HEALTHY = by_path({f"/{endpoint}": answering() for endpoint in DEADLINES})
BUSY = ServerHints(busy=True)
IDLE = ServerHints(busy=False, sleep_enabled=False)


class Watched:
    """One polled server: its hints, to be changed by a test, and what was delivered."""

    def __init__(self, url: str, hints: ServerHints, interval: float, deadline: float) -> None:
        self.hints = hints
        self.answers: list[ApiAnswer] = []
        self.verdict: Callable[[ApiAnswer], PollReason | None] = lambda answer: None
        self.api = LlamaApi(ApiTarget(url, deadlines=dict.fromkeys(DEADLINES, deadline)))
        policy = PollPolicy(interval, NEVER, "main")
        self.poller = ServerPoller("main", self.api, policy, lambda: self.hints, self.take)

    def take(self, endpoint: Endpoint, answer: ApiAnswer) -> PollReason | None:
        assert answer.endpoint == endpoint
        self.answers.append(answer)
        return self.verdict(answer)

    def reasons(self, endpoint: Endpoint) -> list[PollReason | None]:
        return [answer.reason for answer in self.answers if answer.endpoint == endpoint]


@asynccontextmanager
async def polling(
    server: HttpServer | str, hints: ServerHints = BUSY, *, interval: float = 0.01, deadline: float = NEVER
) -> AsyncIterator[Watched]:
    watched = Watched(server if isinstance(server, str) else server.url, hints, interval, deadline)
    watched.poller.start()
    try:
        yield watched
    finally:
        await watched.poller.aclose()
        await watched.api.aclose()


# ---- the round -----------------------------------------------------------------------------------------------------


def test_delivers_every_answer_of_an_active_server() -> None:
    async def test() -> None:
        async with serving(HEALTHY) as server, polling(server) as watched:
            await until(lambda: len(watched.reasons("slots")) >= 5 and len(watched.reasons("metrics")) >= 5)
            assert set(watched.reasons("slots")) == {None}
            assert {"/health", "/props", "/slots", "/metrics"} == {request.target for request in server.requests}

    run(test())


def test_delivers_failures_too() -> None:
    async def test() -> None:
        behaviour = by_path({"/slots": answering(b"{}", 501), "/health": answering(b"{}", 500)})
        async with serving(behaviour) as server, polling(server) as watched:
            await until(lambda: bool(watched.reasons("slots") and len(watched.reasons("health")) >= 2))
            assert watched.reasons("slots") == ["unsupported"]
            assert set(watched.reasons("health")) == {"http_error"}

    run(test())


@pytest.mark.parametrize("behaviour", [web.hanging, web.one_byte_a_second, web.endless_chunks])
def test_other_servers_are_polled_on_while_one_misbehaves(behaviour: web.Behaviour) -> None:
    async def test() -> None:
        async with (
            serving(behaviour) as bad,
            serving(HEALTHY) as good,
            polling(bad),
            polling(good) as watched,
        ):
            await bad.arrived.wait()
            before = len(watched.reasons("slots"))
            await until(lambda: len(watched.reasons("slots")) >= before + 50)
            assert set(watched.reasons("slots")) == {None}

    run(test())


def test_a_server_that_hangs_has_one_request_per_endpoint_and_answers_health() -> None:
    async def test() -> None:
        behaviour = by_path(
            {"/slots": web.hanging, "/metrics": web.hanging, "/props": answering(), "/health": answering()}
        )
        async with serving(behaviour) as server, polling(server) as watched:
            await until(lambda: bool(watched.reasons("health") and watched.reasons("props") and server.asked("/slots")))
            for _ in range(50):
                watched.poller.wake()
                await asyncio.sleep(0)
            assert (server.asked("/slots"), server.asked("/metrics")) == (1, 0)

    run(test())


# ---- waking --------------------------------------------------------------------------------------------------------


def test_a_launch_starts_polling_at_once_and_the_last_release_ends_it_with_one_look() -> None:
    async def test() -> None:
        async with serving(HEALTHY) as server, polling(server, IDLE) as watched:
            await until(lambda: bool(watched.reasons("slots") and watched.reasons("metrics")))
            assert server.asked("/slots") == 1  # the look at the start

            watched.hints = BUSY
            watched.poller.wake()
            await until(lambda: server.asked("/slots") >= 10)

            watched.hints = IDLE
            watched.poller.wake()
            await asyncio.sleep(0)  # the decision that sees it
            asked = server.asked("/slots")
            await until(lambda: server.asked("/slots") > asked or not watched.poller._requests)
            for _ in range(20):
                watched.poller.wake()
                await asyncio.sleep(0.01)
            assert server.asked("/slots") <= asked + 2  # one under way, and the look

    run(test())


def test_a_launch_that_the_log_tells_is_looked_at_when_its_first_token_may_be_out() -> None:
    async def test() -> None:
        now = 1000.0
        async with serving(HEALTHY) as server:
            api = LlamaApi(ApiTarget(server.url))
            hints = ServerHints(busy=False, sleep_enabled=True)
            poller = ServerPoller(
                "main", api, PollPolicy(0.01, NEVER), lambda: hints, lambda endpoint, answer: None, lambda: now
            )
            poller.start()
            await until(lambda: server.asked("/props") == 1)
            now += 60.0
            hints = BUSY
            poller.launched(0.1)
            poller.wake()
            await asyncio.sleep(0.05)
            assert server.asked("/slots") == 0
            now += LAUNCH_SECONDS - 0.1
            poller.wake()
            await until(lambda: server.asked("/slots") == 1)
            await poller.aclose()
            await api.aclose()

    run(test())


def test_a_server_that_is_not_to_be_asked_soon_keeps_no_connection_open() -> None:
    """It would close it in a moment, which wakes us for nothing, and has few threads for those that stay open."""

    async def test() -> None:
        async with serving(HEALTHY) as server, polling(server, IDLE) as watched:
            await until(lambda: bool(watched.reasons("metrics")) and not watched.poller._requests)
            await until(lambda: server.open_connections == 0)
            watched.hints = BUSY
            watched.poller.wake()
            asked = len(server.requests)
            await until(lambda: len(server.requests) > asked + 10)
            assert server.open_connections == 1

    run(test())


def test_a_look_asks_an_idle_server_once_more() -> None:
    async def test() -> None:
        async with serving(HEALTHY) as server, polling(server, IDLE) as watched:
            await until(lambda: bool(watched.reasons("metrics")))
            watched.poller.look()
            await until(lambda: len(watched.reasons("metrics")) == 2)
            assert server.asked("/slots") == 2

    run(test())


def test_a_server_that_may_sleep_is_never_asked_for_its_slots_until_it_works() -> None:
    async def test() -> None:
        hints = ServerHints(busy=False, sleep_enabled=True)
        async with serving(HEALTHY) as server, polling(server, hints) as watched:
            await until(lambda: bool(watched.reasons("health") and watched.reasons("props")))
            for _ in range(20):
                watched.poller.look()
                await asyncio.sleep(0.01)
            assert server.asked("/slots") == server.asked("/metrics") == 0
            watched.hints = BUSY
            watched.poller.wake()
            await until(lambda: server.asked("/metrics") > 0)

    run(test())


def test_a_restart_forgets_what_was_switched_off_and_breaks_off_what_hangs() -> None:
    async def test() -> None:
        first = by_path({"/slots": answering(b"{}", 501), "/metrics": web.hanging, "/health": answering()})
        async with serving(first) as server, polling(server) as watched:
            await until(lambda: bool(watched.reasons("slots")) and server.asked("/metrics") == 1)
            server.behaviour = HEALTHY
            watched.poller.restarted()
            await until(lambda: None in watched.reasons("slots") and None in watched.reasons("metrics"))

    run(test())


# ---- the end -------------------------------------------------------------------------------------------------------


def test_closing_ends_hung_requests_at_once_and_leaves_no_task() -> None:
    async def test() -> None:
        async with serving(web.hanging) as server, polling(server) as watched:
            await until(lambda: server.asked("/slots") == 1)
            await asyncio.wait_for(watched.poller.aclose(), 10)
            assert not watched.answers
            names = [task.get_name() for task in asyncio.all_tasks()]
            assert not [name for name in names if name.startswith("poll ")]
            await watched.poller.aclose()  # twice does no harm

    run(test())


def test_closing_before_the_first_step_is_harmless() -> None:
    async def test() -> None:
        async with serving(HEALTHY) as server, polling(server):
            pass
        assert not server.requests

    run(test())


# ---- errors of our own ---------------------------------------------------------------------------------------------


def test_a_consumer_that_fails_ends_nothing_and_its_words_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        def fail(answer: ApiAnswer) -> PollReason | None:
            raise KeyError(answer.body)

        behaviour = by_path({f"/{endpoint}": answering(b"SECRET PROMPT") for endpoint in DEADLINES})
        async with serving(behaviour) as server, polling(server) as watched:
            watched.verdict = fail
            await until(lambda: len(watched.reasons("slots")) >= 3)
            watched.verdict = lambda answer: None
            await until(lambda: len(watched.reasons("metrics")) >= 3)

    run(test())
    said = lines(caplog, "GET /slots: unexpected KeyError")
    assert len(said) == 1
    assert "test_poller.py" in said[0]
    assert "SECRET" not in caplog.text


def test_hints_that_cannot_be_had_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        broken, secret = True, "SEC" + "RET"

        def hints() -> ServerHints:
            if broken:
                raise ValueError(secret)
            return BUSY

        async with serving(HEALTHY) as server:
            api = LlamaApi(ApiTarget(server.url))
            poller = ServerPoller("main", api, PollPolicy(0.01, NEVER), hints, lambda endpoint, answer: None)
            poller.start()
            await until(lambda: "unexpected ValueError" in caplog.text)
            broken = False
            poller.wake()
            await until(lambda: server.asked("/slots") >= 2)
            await poller.aclose()
            await api.aclose()

    run(test())
    assert "SECRET" not in caplog.text


# ---- what is said --------------------------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


def test_a_failure_is_said_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kvexporter.poll")

    async def test() -> None:
        failing = by_path({"/health": answering(b"SECRET", 500)}, HEALTHY)
        async with serving(failing) as server, polling(server) as watched:
            await until(lambda: len(watched.reasons("health")) >= 4)
            server.behaviour = HEALTHY
            await until(lambda: bool(lines(caplog, "answers again")))

    run(test())
    assert lines(caplog, "/health") == [
        "main: GET /health fails (http_error): HTTP status 500",
        "main: GET /health answers again",
    ]


def test_a_failure_that_comes_and_goes_is_not_said_every_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kvexporter.poll")

    async def test() -> None:
        async def moody(request: Request, writer: asyncio.StreamWriter) -> None:
            await answering(b"{}", 500 if server.asked("/slots") % 2 else 200)(request, writer)

        async with serving(by_path({"/slots": moody}, HEALTHY)) as server, polling(server) as watched:
            await until(lambda: watched.reasons("slots").count("http_error") >= 4)

    run(test())
    assert len(lines(caplog, "/slots fails")) == 1
    assert len(lines(caplog, "/slots answers again")) == 1


def test_a_new_reason_is_said_with_its_remedy(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving(by_path({"/slots": answering(b"{}", 500)}, HEALTHY)) as server, polling(server) as watched:
            await until(lambda: "http_error" in watched.reasons("slots"))
            server.behaviour = by_path({"/slots": answering(b"{}", 501)}, HEALTHY)
            await until(lambda: "unsupported" in watched.reasons("slots"))

    run(test())
    said = lines(caplog, "/slots fails")
    assert len(said) == 2
    assert said[1].endswith("(unsupported): HTTP status 501; start llama-server with --slots")


def test_a_body_the_consumer_refuses_is_a_failure_and_slows_polling(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        login_page = by_path({"/slots": answering(b"<html>SECRET")}, HEALTHY)
        async with serving(login_page) as server, polling(server) as watched:
            watched.verdict = lambda answer: "malformed" if answer.endpoint == "slots" else None
            await until(lambda: len(watched.reasons("slots")) >= 4 and len(watched.reasons("metrics")) >= 12)
            assert watched.poller._failures["slots"].count >= 3

    run(test())
    assert len(lines(caplog, "/slots fails (malformed)")) == 1
    assert "SECRET" not in caplog.text


def test_loading_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving(answering(b"{}", 503)) as server, polling(server) as watched:
            await until(lambda: "loading" in watched.reasons("health") and "loading" in watched.reasons("slots"))

    run(test())
    assert not lines(caplog, "fails")
