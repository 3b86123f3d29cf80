"""The HTTP source against real servers that answer, refuse and misbehave."""

from __future__ import annotations

import asyncio
import re
import socket

import pytest

from kvexporter.facts import Endpoint, PollReason
from kvexporter.sources.llama_api import BODY_BOUND, ApiAnswer, ApiTarget, LlamaApi
from tests.support import http_servers as web
from tests.support.asking import SHORT, ask, run
from tests.support.http_servers import Behaviour, Request, answering, raw, serving, until

# ---- answers --------------------------------------------------------------------------------------------------------


def test_gives_the_whole_body_and_the_wall_clocks_times() -> None:
    async def test() -> None:
        ticks = iter((1000.25, 1000.75))
        async with serving(answering(b'[{"id":0}]')) as server:
            api = LlamaApi(ApiTarget(server.url), lambda: next(ticks))
            answer = await api.get("slots")
            await api.aclose()
        assert answer.ok
        assert (answer.status, answer.body, answer.reason, answer.detail) == (200, b'[{"id":0}]', None, "")
        assert (answer.endpoint, answer.sent_at, answer.answered_at) == ("slots", 1000.25, 1000.75)

    run(test())


@pytest.mark.parametrize("endpoint", ["health", "props", "slots", "metrics", "models"])
def test_asks_under_the_base_path_without_query_or_credentials_for_an_uncompressed_answer(endpoint: Endpoint) -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            await ask(server, endpoint, url=f"{server.url}/llama/one/")
        [request] = server.requests
        assert request.target == f"/llama/one/{endpoint}"
        assert request.headers["accept-encoding"] == "identity"
        assert request.headers["host"] == f"127.0.0.1:{server.port}"
        assert "authorization" not in request.headers
        assert re.fullmatch(r"kvexporter/\S+", request.headers["user-agent"])

    run(test())


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "unauthorized"),
        (403, "unauthorized"),
        (404, "not_found"),
        (501, "unsupported"),
        (503, "loading"),
        (400, "http_error"),
        (500, "http_error"),
        (204, "http_error"),
        (206, "http_error"),
        (301, "redirect"),
        (302, "redirect"),
        (307, "redirect"),
        (308, "redirect"),
    ],
)
def test_tells_each_status_apart_and_shows_nothing_of_the_body(status: int, reason: PollReason) -> None:
    async def test() -> None:
        body = b"" if status == 204 else b'{"error":"SECRET PROMPT"}'
        async with serving(answering(body, status, "Location: http://127.0.0.1:1/SECRET\r\n")) as server:
            answer = await ask(server, "slots")
        assert (answer.reason, answer.status, answer.body) == (reason, status, b"")
        assert str(status) in answer.detail
        assert "SECRET" not in repr(answer)

    run(test())


def test_follows_no_redirect() -> None:
    async def test() -> None:
        async with (
            serving(answering()) as elsewhere,
            serving(answering(b"", 302, f"Location: {elsewhere.url}/\r\n")) as server,
        ):
            assert (await ask(server)).reason == "redirect"
        assert len(server.requests) == 1
        assert not elsewhere.requests

    run(test())


@pytest.mark.parametrize("body", [b"<html><body>login</body></html>", b'[{"id":0,"n_ct', b"", b"\xff\xfe\x00"])
def test_hands_a_strange_body_of_a_200_on_as_it_is(body: bytes) -> None:
    """HTML and truncated JSON are for the parser to refuse, which knows what each endpoint says."""

    async def test() -> None:
        async with serving(answering(body, headers="Content-Type: text/html\r\n")) as server:
            answer = await ask(server, "slots")
        assert answer.ok
        assert answer.body == body

    run(test())


def test_never_shows_a_body_in_its_repr() -> None:
    assert "SECRET" not in repr(ApiAnswer("slots", 1.0, 2.0, 200, b"SECRET"))


# ---- misbehaviour ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "behaviour",
    [
        web.hanging,
        web.one_byte_a_second,
        raw(b"HTTP/1.1 200 OK\r\nContent-Le"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[{"),
        raw(b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["never answers", "one byte a second", "stops in the headers", "stops in the body", "says only continue"],
)
def test_the_deadline_ends_a_request_wherever_it_hangs(behaviour: Behaviour) -> None:
    async def test() -> None:
        async with serving(behaviour) as server:
            answer = await ask(server, "slots", SHORT)
            assert (answer.reason, answer.status, answer.body) == ("timeout", None, b"")
            assert "0.3 s" in answer.detail
            if behaviour is not web.hanging:  # that one does not look
                await until(lambda: server.open_connections == 0)

    run(test())


def test_the_deadline_covers_a_connection_that_nobody_accepts() -> None:
    async def test() -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            api = LlamaApi(ApiTarget(f"http://127.0.0.1:{listener.getsockname()[1]}", deadlines=SHORT))
            assert (await api.get("health")).reason == "timeout"
            await api.aclose()
            for filler in fillers:
                filler.close()

    run(test())


def test_patience_lengthens_the_deadline() -> None:
    async def test() -> None:
        async def slow(request: Request, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.6)
            await answering()(request, writer)

        async with serving(slow) as server:
            api = LlamaApi(ApiTarget(server.url, deadlines=SHORT))
            assert (await api.get("slots")).reason == "timeout"
            assert (await api.get("slots", patience=60)).ok
            await api.aclose()

    run(test())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nSECRET", "connection"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nSEC", "connection"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nSECRET\r\n", "connection"),
        (b"SSH-2.0-SECRET_9.2\r\n", "connection"),
        (b"HTTP/1.1 200 OK\r\nSECRET\r\n\r\n", "connection"),
    ],
)
def test_a_broken_answer_is_a_connection_error_that_quotes_nothing(data: bytes, reason: PollReason) -> None:
    async def test() -> None:
        async with serving(raw(data, close=True)) as server:
            answer = await ask(server, "slots")
        assert (answer.reason, answer.body) == (reason, b"")
        assert answer.detail
        assert "SECRET" not in repr(answer)
        assert len(server.requests) == 1

    run(test())


@pytest.mark.parametrize(
    "behaviour",
    [
        web.endless_chunks,
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n" + bytes(1000)),
        answering(bytes(BODY_BOUND + 1)),
    ],
    ids=["1 GiB chunked", "1 GiB announced", "one byte too many"],
)
def test_a_body_above_the_bound_is_broken_off(behaviour: Behaviour) -> None:
    async def test() -> None:
        async with serving(behaviour) as server:
            answer = await ask(server, "slots")
            assert (answer.reason, answer.status, answer.body) == ("too_large", 200, b"")
            await until(lambda: server.open_connections == 0)

    run(test())


def test_a_body_as_large_as_the_bound_is_whole() -> None:
    async def test() -> None:
        async with serving(answering(bytes(BODY_BOUND))) as server:
            answer = await ask(server, "slots")
        assert answer.ok
        assert len(answer.body) == BODY_BOUND

    run(test())


def test_headers_without_end_are_broken_off() -> None:
    async def test() -> None:
        async with serving(web.endless_headers) as server:
            answer = await ask(server)
        assert answer.reason == "too_large"
        assert "headers" in answer.detail

    run(test())


def test_an_endless_body_of_an_error_is_broken_off_and_the_status_kept() -> None:
    async def endless_error(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 501 No\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1000\r\n" + bytes(0x1000) + b"\r\n")
            await writer.drain()

    async def test() -> None:
        async with serving(endless_error) as server:
            assert (await ask(server)).reason == "unsupported"

    run(test())


def test_a_compressed_answer_is_refused_unopened() -> None:
    async def test() -> None:
        async with serving(answering(b"\x1f\x8b" + bytes(100), headers="Content-Encoding: gzip\r\n")) as server:
            assert (await ask(server)).reason == "malformed"

    run(test())


def test_a_port_without_listener_is_refused() -> None:
    async def test() -> None:
        with socket.socket() as reserved:
            reserved.bind(("127.0.0.1", 0))
            api = LlamaApi(ApiTarget(f"http://127.0.0.1:{reserved.getsockname()[1]}"))
            answer = await api.get("health")
            await api.aclose()
        assert (answer.reason, answer.detail) == ("refused", "nothing listens there")

    run(test())


def test_a_host_name_that_does_not_exist_is_a_connection_error() -> None:
    async def test() -> None:
        api = LlamaApi(ApiTarget("http://does-not-exist.invalid:8080"))
        assert (await api.get("health")).reason in ("connection", "timeout")  # timeout: a machine without a resolver
        await api.aclose()

    run(test())
