"""Connections: handshakes that never end, clients that never read, floods, and a lack of descriptors."""

from __future__ import annotations

import asyncio
import errno
import shutil
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from kvexporter.options import ListenAddress
from kvexporter.web import listener
from kvexporter.web.app import create_app
from kvexporter.web.live_config import LiveWebConfig
from kvexporter.web.protocol import BoundedProtocol
from kvexporter.web.serve import MAX_TAKEN, WebServer, serve
from tests.support.certificates import make_server_files
from tests.support.snapshots import FULL, exporter
from tests.support.web_server import TLS

T = TypeVar("T")
DEADLINE = 20.0
REQUEST = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("listener")
    make_server_files(folder)
    (folder / "web.yml").write_text(TLS)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "web")
    return tmp_path / "web"


def with_server(
    web_config: LiveWebConfig | None, test: Callable[[WebServer], Awaitable[T]], application: ASGIApp | None = None
) -> T:
    async def run() -> T:
        snapshot = exporter(FULL)
        app = application or create_app(lambda: snapshot, lambda: True, lambda: True, web_config=web_config)
        server = await serve(app, [ListenAddress("127.0.0.1", 0)], web_config)
        try:
            async with asyncio.timeout(3 * DEADLINE):
                return await test(server)
        finally:
            await server.aclose()

    return asyncio.run(run())


def address(server: WebServer) -> tuple[str, int]:
    return server.addresses[0].host, server.addresses[0].port


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    received = b""
    async with asyncio.timeout(DEADLINE):
        with suppress(ConnectionError, ssl.SSLError):
            while chunk := await reader.read(65536):
                received += chunk
    return received


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - the server tells nobody of its connections
            await asyncio.sleep(0.01)


async def answered(server: WebServer, folder: Path) -> bool:
    """Whether a client that behaves is answered over TLS."""
    trust = ssl.create_default_context(cafile=folder / "ca.crt")
    reader, writer = await asyncio.open_connection(*address(server), ssl=trust)
    writer.write(REQUEST)
    head = await reader.readuntil(b"\r\n")
    writer.close()
    with suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()
    return b"200" in head


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("sent", [b"", b"\x16", client_hello()[:50], client_hello()], ids=["0", "1", "part", "hello"])
def test_a_handshake_that_never_ends_is_cut_off(
    sent: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 0.3)

    async def test(server: WebServer) -> None:
        reader, writer = await asyncio.open_connection(*address(server))
        writer.write(sent)
        assert b"HTTP" not in await until_closed(reader)
        writer.close()
        assert server.connections == 0
        monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 10.0)
        assert await answered(server, folder)

    with_server(LiveWebConfig(folder / "web.yml"), test)
    assert not caplog.records


def test_many_hanging_handshakes_do_not_keep_others_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_HANDSHAKES", 5)
    monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 600.0)

    async def test(server: WebServer) -> None:
        hanging = [await asyncio.open_connection(*address(server)) for _ in range(20)]
        assert await answered(server, folder)
        # The oldest ones were cut off to make room, and no more than the bound are left.
        for reader, _ in hanging[:15]:
            assert await until_closed(reader) == b""
        for _, writer in hanging:
            writer.close()

    with_server(LiveWebConfig(folder / "web.yml"), test)


def test_stopping_ends_handshakes_under_way(folder: Path) -> None:
    async def run() -> None:
        live = LiveWebConfig(folder / "web.yml")
        server = await serve(create_app(exporter, lambda: True, lambda: True), [ListenAddress("127.0.0.1", 0)], live)
        reader, writer = await asyncio.open_connection(*address(server))
        await until(lambda: bool(server._listeners[0]._arriving))
        await server.aclose()
        assert await until_closed(reader) == b""
        writer.close()

    asyncio.run(run())


def test_connections_beyond_all_bounds_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else these, which only wait, would give way before there are so many.
    monkeypatch.setattr(BoundedProtocol, "_make_room", lambda protocol: None)

    async def test(server: WebServer) -> None:
        held = [await asyncio.open_connection(*address(server)) for _ in range(MAX_TAKEN)]
        await until(lambda: server.connections == MAX_TAKEN)
        reader, writer = await asyncio.open_connection(*address(server))
        assert await until_closed(reader) == b""
        for _, one in [*held, (reader, writer)]:
            one.close()
        await until(lambda: server.connections == 0)
        reader, writer = await asyncio.open_connection(*address(server))
        writer.write(REQUEST)
        assert b"200" in await reader.readuntil(b"\r\n")
        writer.close()

    with_server(None, test)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_client_that_never_reads_its_answer_is_cut_off(
    tls: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedProtocol, "seconds", 1.0)

    async def huge(scope: Scope, receive: Receive, send: Send) -> None:
        # As the metrics are sent: with their length, so that the body is the last that is written.
        body = b"x" * 32 * 1024 * 1024
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def ask(where: tuple[str, int], stop: socket.socket) -> None:
        with socket.create_connection(where, DEADLINE) as plain:
            client: socket.socket = plain
            if tls:
                trust = ssl.create_default_context(cafile=folder / "ca.crt")
                client = trust.wrap_socket(plain, server_hostname="localhost")
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            stop.recv(1)
            client.close()

    async def test(server: WebServer) -> None:
        stop, stopped = socket.socketpair()
        with stop, stopped:
            asked = asyncio.create_task(asyncio.to_thread(ask, address(server), stopped))
            try:
                await until(lambda: server.connections == 1)
                await until(lambda: server.connections == 0)
            finally:
                stop.send(b"x")
                await asked

    with_server(LiveWebConfig(folder / "web.yml") if tls else None, test, huge)


def test_an_idle_tls_connection_outlives_the_deadline_of_a_request(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedProtocol, "seconds", 0.2)

    async def test(server: WebServer) -> None:
        trust = ssl.create_default_context(cafile=folder / "ca.crt")
        reader, writer = await asyncio.open_connection(*address(server), ssl=trust, server_hostname="localhost")
        for _ in range(2):
            writer.write(REQUEST)
            await reader.readuntil(b"healthy.\n")
            await asyncio.sleep(0.5)
            assert not reader.at_eof()
        writer.close()

    with_server(LiveWebConfig(folder / "web.yml"), test)


def test_a_lack_of_descriptors_is_said_once_and_survived(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "REST_SECONDS", 0.01)
    left = 3

    async def test(server: WebServer) -> None:
        loop = asyncio.get_running_loop()
        real = loop.sock_accept

        async def accept(sock: socket.socket) -> tuple[socket.socket, object]:
            nonlocal left
            if left:
                left -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return await real(sock)

        monkeypatch.setattr(loop, "sock_accept", accept)
        # The accept that is already waiting takes the first connection; those after it meet the lack.
        for _ in range(2):
            reader, writer = await asyncio.open_connection(*address(server))
            writer.write(REQUEST)
            assert b"200" in await reader.readuntil(b"\r\n")
            writer.close()

    with_server(None, test)
    assert left == 0
    assert [record.getMessage() for record in caplog.records] == ["no connection can be taken: Too many open files"]
