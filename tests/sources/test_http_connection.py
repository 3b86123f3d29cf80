"""A single connection: what it takes for an answer, when it can be used again, and which address it leads to."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
import pytest

from kvexporter.sources import http_connection as module
from kvexporter.sources.http_connection import HttpConnection, Place, TooLargeError, connect
from tests.support.asking import run
from tests.support.http_servers import HttpServer, answering, raw, serving, until

HOST = [(b"Host", b"test")]


async def connected(server: HttpServer) -> HttpConnection:
    return await connect(Place(server.host, server.port), None)


def test_it_serves_one_request_after_the_other() -> None:
    async def test() -> None:
        async with serving(answering(b"body")) as server:
            connection = await connected(server)
            for _ in range(3):
                assert await connection.get(b"/", HOST, 100) == (200, b"body")
                assert connection.usable
            connection.close()
            assert not connection.usable
        assert (len(server.requests), server.connections) == (3, 1)

    run(test())


def test_an_interim_response_is_passed_over() -> None:
    async def test() -> None:
        interim = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        async with serving(raw(interim + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as server:
            connection = await connected(server)
            assert await connection.get(b"/", HOST, 100) == (200, b"ok")
            connection.close()

    run(test())


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def test() -> None:
        async with serving(raw(b"HTTP/1.1 200 OK\r\n\r\nall of it", close=True)) as server:
            connection = await connected(server)
            assert await connection.get(b"/", HOST, 100) == (200, b"all of it")
            assert not connection.usable

    run(test())


def test_a_body_that_ends_early_is_no_answer() -> None:
    async def test() -> None:
        async with serving(raw(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf", close=True)) as server:
            connection = await connected(server)
            with pytest.raises(h11.RemoteProtocolError):
                await connection.get(b"/", HOST, 100)
            assert not connection.usable

    run(test())


def test_a_body_above_its_bound_is_given_up_and_the_connection_with_it() -> None:
    async def test() -> None:
        async with serving(answering(b"x" * 101)) as server:
            connection = await connected(server)
            with pytest.raises(TooLargeError):
                await connection.get(b"/", HOST, 100)
            assert not connection.usable
            await until(lambda: server.open_connections == 0)

    run(test())


def test_more_than_the_answer_makes_the_connection_useless() -> None:
    """What comes unasked would be taken for the next request's answer."""

    async def test() -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        async with serving(raw(answer + answer)) as server:
            connection = await connected(server)
            assert await connection.get(b"/", HOST, 100) == (200, b"ok")
            with pytest.raises((OSError, h11.RemoteProtocolError)):
                await connection.get(b"/", HOST, 100)

    run(test())


def test_what_comes_between_two_requests_makes_it_useless() -> None:
    async def test() -> None:
        async def late(request: Any, writer: asyncio.StreamWriter) -> None:
            await answering()(request, writer)
            await asyncio.sleep(0.05)
            writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")

        async with serving(late) as server:
            connection = await connected(server)
            await connection.get(b"/", HOST, 100)
            await until(lambda: not connection.usable)

    run(test())


def test_a_request_that_is_broken_off_takes_its_connection_with_it() -> None:
    async def test() -> None:
        async with serving(raw(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf")) as server:
            connection = await connected(server)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await connection.get(b"/", HOST, 100)
            assert not connection.usable
            await until(lambda: server.open_connections == 0)

    run(test())


def test_of_several_addresses_the_one_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving(answering(b"body")) as server:
            connection = await connect(Place("some.host", server.port), None)
            assert await connection.get(b"/", HOST, 100) == (200, b"body")
            connection.close()

    async def addresses(place: Place) -> list[tuple[int, tuple[str, int]]]:
        return [(socket.AF_INET, (host, place.port)) for host in ("127.0.0.99", "127.0.0.1")]

    monkeypatch.setattr(module, "_addresses", addresses)
    run(test())


def test_when_no_address_answers_the_first_ones_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            port = server.port
        with pytest.raises(ConnectionRefusedError):
            await connect(Place("some.host", port), None)

    async def addresses(place: Place) -> list[tuple[int, tuple[str, int]]]:
        return [(socket.AF_INET, (host, place.port)) for host in ("127.0.0.99", "127.0.0.98")]

    monkeypatch.setattr(module, "_addresses", addresses)
    run(test())


def test_a_hosts_name_is_resolved() -> None:
    async def test() -> None:
        async with serving(answering(b"body")) as server:
            connection = await connect(Place("localhost", server.port), None)
            assert await connection.get(b"/", HOST, 100) == (200, b"body")
            connection.close()

    run(test())
