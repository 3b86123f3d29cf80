"""The HTTP server: its addresses, and clients that do not behave."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from kvexporter.options import ListenAddress
from kvexporter.web import protocol
from kvexporter.web.app import create_app
from kvexporter.web.protocol import BoundedProtocol
from kvexporter.web.serve import MAX_CONNECTIONS, ListenError, WebServer, serve
from tests.support.snapshots import FULL, exporter

T = TypeVar("T")
LOCAL = ListenAddress("127.0.0.1", 0)
DEADLINE = 20.0


def app() -> ASGIApp:
    snapshot = exporter(FULL)
    return create_app(lambda: snapshot, lambda: True, lambda: True)


def with_server(
    test: Callable[[WebServer], Awaitable[T]], *addresses: ListenAddress, application: ASGIApp | None = None
) -> T:
    async def run() -> T:
        server = await serve(application or app(), addresses or (LOCAL,))
        try:
            async with asyncio.timeout(3 * DEADLINE):
                return await test(server)
        finally:
            await server.aclose()

    return asyncio.run(run())


def url(server: WebServer, index: int = 0) -> str:
    return f"http://{server.addresses[index]}"


async def connect(server: WebServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*_pair(server))


def _pair(server: WebServer) -> tuple[str, int]:
    return server.addresses[0].host, server.addresses[0].port


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """What still comes until the other side ends the connection, however it does that."""
    received = b""
    async with asyncio.timeout(DEADLINE):
        with suppress(ConnectionError):
            while chunk := await reader.read(65536):
                received += chunk
    return received


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - the server tells nobody of its connections
            await asyncio.sleep(0.01)


async def get(server: WebServer, path: str = "/metrics", method: str = "GET", index: int = 0) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as client:
        return await client.request(method, url(server, index) + path)


def test_it_answers_on_every_address() -> None:
    async def test(server: WebServer) -> None:
        assert [(await get(server, index=index)).status_code for index in range(3)] == [200, 200, 200]

    with_server(test, LOCAL, LOCAL, ListenAddress("::1", 0))


def test_an_empty_host_means_all_addresses_of_both_protocols() -> None:
    async def test(server: WebServer) -> None:
        port = server.addresses[0].port
        async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as client:
            assert (await client.get(f"http://127.0.0.1:{port}/-/healthy")).status_code == 200
            assert (await client.get(f"http://[::1]:{port}/-/healthy")).status_code == 200

    with_server(test, ListenAddress("", 0))


def test_head_has_the_headers_of_get_and_no_body() -> None:
    async def test(server: WebServer) -> None:
        head = await get(server, "/-/healthy", "HEAD")
        full = await get(server, "/-/healthy")
        assert head.status_code == 200
        assert head.content == b""
        assert head.headers["content-length"] == full.headers["content-length"]

    with_server(test)


def test_connections_are_kept_between_scrapes() -> None:
    async def test(server: WebServer) -> None:
        reader, writer = await connect(server)
        for _ in range(3):
            writer.write(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(b"kvexporter is healthy.\n"))
        writer.close()

    with_server(test)


def test_a_taken_port_is_an_error_that_says_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"127\.0\.0\.1:{port}: the port is taken by another program; choose"):
            asyncio.run(serve(app(), [LOCAL, ListenAddress("127.0.0.1", port)]))


def test_an_address_of_another_host_is_an_error_that_says_so() -> None:
    with pytest.raises(ListenError, match="this host has no such address"):
        asyncio.run(serve(app(), [ListenAddress("192.0.2.1", 0)]))


def test_an_unknown_host_name_is_an_error_that_names_the_option() -> None:
    with pytest.raises(ListenError, match=r"check --web\.listen-address"):
        asyncio.run(serve(app(), [ListenAddress("no-such-host.invalid", 0)]))


def test_signals_stay_with_the_daemon() -> None:
    def handlers() -> list[object]:
        return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    async def run() -> None:
        before = handlers()
        server = await serve(app(), [LOCAL])
        await get(server)
        assert handlers() == before
        await server.aclose()

    asyncio.run(run())


def test_a_client_that_sends_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "seconds", 0.2)

    async def test(server: WebServer) -> None:
        reader, writer = await connect(server)
        assert await until_closed(reader) == b""
        writer.close()

    with_server(test)


def test_a_request_that_comes_byte_by_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "seconds", 0.3)

    async def drip(writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while True:
                writer.write(b"G")
                await writer.drain()
                await asyncio.sleep(0.01)

    async def test(server: WebServer) -> None:
        reader, writer = await connect(server)
        dripping = asyncio.create_task(drip(writer))
        assert b"200" not in await until_closed(reader)
        dripping.cancel()
        writer.close()

    with_server(test)


def test_a_second_request_that_is_never_finished_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "seconds", 0.5)

    async def test(server: WebServer) -> None:
        reader, writer = await connect(server)
        writer.write(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"healthy.\n")
        writer.write(b"GET /")
        assert await until_closed(reader) == b""
        writer.close()

    with_server(test)


def test_a_client_that_never_reads_its_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "seconds", 0.5)

    async def huge(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 32 * 1024 * 1024})

    async def test(server: WebServer) -> None:
        # asyncio's stream would read; a plain socket that nobody reads from does not.
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, _pair(server))
            await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(lambda: server.connections == 1)
            await until(lambda: server.connections == 0)

    with_server(test, application=huge)


def test_an_idle_connection_outlives_the_deadline_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "seconds", 0.2)

    async def test(server: WebServer) -> None:
        reader, writer = await connect(server)
        for _ in range(2):
            writer.write(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"healthy.\n")
            await asyncio.sleep(0.5)
            assert not reader.at_eof()
        writer.close()

    with_server(test)


def test_headers_beyond_the_bound_are_refused() -> None:
    async def test(server: WebServer) -> None:
        reader, writer = await connect(server)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 64 * 1024)
        assert b"200 OK" not in await until_closed(reader)
        writer.close()

    with_server(test)


@pytest.mark.parametrize(
    "request_", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\r\n" * 9000]
)
def test_what_is_no_http_is_refused_without_a_word_in_the_log(
    request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(server: WebServer) -> None:
        reader, writer = await connect(server)
        writer.write(request_ + b"\r\n\r\n")
        assert b"200 OK" not in await until_closed(reader)
        writer.close()
        assert (await get(server)).status_code == 200

    with_server(test)
    assert not caplog.records


@pytest.mark.parametrize("request_", [b"POST /-/reload", b"GET /api/v1/events"])
@pytest.mark.parametrize("later", [False, True])
def test_a_body_of_bad_chunks_ends_the_connection_without_a_word_in_the_log(
    request_: bytes, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(server: WebServer) -> None:
        reader, writer = await connect(server)
        head, body = request_ + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"no number\r\n"
        writer.write(head if later else head + body)
        if later:
            async with asyncio.timeout(DEADLINE):
                await reader.readline()
            writer.write(body)
        await until_closed(reader)
        writer.close()
        await until(lambda: server.connections == 0)
        assert (await get(server)).status_code == 200

    with_server(test)
    assert not caplog.records


def test_a_body_is_not_read_and_ends_the_connection() -> None:
    async def test(server: WebServer) -> None:
        reader, writer = await connect(server)
        writer.write(b"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 100_000)
        answer = await until_closed(reader)
        assert b"403 Forbidden" in answer
        assert b"connection: close" in answer
        writer.close()

    with_server(test)


def test_an_upgrade_to_websocket_is_an_ordinary_request() -> None:
    async def test(server: WebServer) -> None:
        reader, writer = await connect(server)
        writer.write(
            b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        writer.close()

    with_server(test)


@pytest.mark.parametrize("sent", [b"", b"GET /met", b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n"], ids=str)
def test_any_number_of_clients_that_say_nothing_more_do_not_keep_a_scrape_out(sent: bytes) -> None:
    async def test(server: WebServer) -> None:
        held = []
        for _ in range(200):
            held.append(await connect(server))
            held[-1][1].write(sent)
        for _ in range(5):
            assert (await get(server)).status_code == 200
        assert server.connections < MAX_CONNECTIONS
        # The oldest made room.
        await until_closed(held[0][0])
        for _, writer in held:
            writer.close()

    with_server(test)


def test_a_half_request_gives_its_place_before_a_connection_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "PATIENCE_SECONDS", 0.0)

    async def test(server: WebServer) -> None:
        kept, asking = await connect(server)
        asking.write(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        await kept.readuntil(b"healthy.\n")
        slow = [await connect(server) for _ in range(2 * MAX_CONNECTIONS)]
        await until_closed(slow[0][0])
        asking.write(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in await kept.readuntil(b"\r\n")
        for writer in (asking, *(writer for _, writer in slow)):
            writer.close()

    with_server(test)


def test_while_all_places_are_taken_by_answers_under_way_others_are_turned_away_and_served_afterwards() -> None:
    entered, go_on = asyncio.Semaphore(0), asyncio.Event()
    usual = app()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/wait":
            entered.release()
            await go_on.wait()
        await usual(scope, receive, send)

    async def test(server: WebServer) -> None:
        held = [await connect(server) for _ in range(MAX_CONNECTIONS - 1)]
        for _, writer in held:
            writer.write(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
            await entered.acquire()
        assert (await get(server)).status_code == 503
        go_on.set()
        for reader, writer in held:
            assert b"404" in await reader.readuntil(b"\r\n")
            writer.close()
        await until(lambda: server.connections == 0)
        assert (await get(server)).status_code == 200

    with_server(test, application=waiting)


def test_stopping_ends_idle_connections_and_frees_the_port() -> None:
    async def run() -> None:
        server = await serve(app(), [LOCAL])
        address = server.addresses[0]
        reader, writer = await connect(server)
        writer.write(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"healthy.\n")
        await server.aclose()
        assert await until_closed(reader) == b""
        writer.close()
        again = await serve(app(), [address])
        await again.aclose()

    asyncio.run(run())


def test_stopping_waits_only_briefly_for_an_answer_under_way() -> None:
    entered = asyncio.Event()

    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await asyncio.Event().wait()

    async def run() -> None:
        server = await serve(never, [LOCAL])
        reader, writer = await connect(server)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await entered.wait()
        async with asyncio.timeout(DEADLINE):
            await server.aclose()
        assert await until_closed(reader) == b""
        writer.close()

    asyncio.run(run())
