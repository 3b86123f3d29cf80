"""How the HTTP source makes, keeps and closes connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from kvexporter.sources.llama_api import DEADLINES, ApiTarget, LlamaApi
from tests.support import http_servers as web
from tests.support.asking import PATIENT, ask, run
from tests.support.http_servers import Behaviour, Request, answering, raw, serving, until


def own_sockets_to(server_port: int) -> int:
    """TCP connections of this process to a local port, in whatever state, seen from the client's side."""
    inodes = set()
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(entry.path))  # noqa: PTH115
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[2].split(":")[1], 16) == server_port and f"socket:[{row[9]}]" in inodes for row in rows)


def test_one_connection_serves_many_requests() -> None:
    async def test() -> None:
        behaviours = {"/health": answering(), "/slots": answering(b"[]"), "/metrics": answering(b"{}", 501)}
        async with serving(web.by_path(behaviours)) as server:
            api = LlamaApi(ApiTarget(server.url))
            for _ in range(3):
                for endpoint in ("health", "slots", "metrics"):
                    await api.get(endpoint)
            await api.aclose()
        assert len(server.requests) == 9
        assert server.connections == 1

    run(test())


def test_keeps_no_more_than_one_connection_open() -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            api = LlamaApi(ApiTarget(server.url))
            await asyncio.gather(*(api.get(endpoint) for endpoint in DEADLINES))
            await until(lambda: server.open_connections <= 1)
            await api.aclose()

    run(test())


def test_a_server_that_closes_kept_connections_is_asked_over_a_new_one() -> None:
    """As llama-server does after 100 requests or 5 s; here in the moment of the second request."""

    async def test() -> None:
        async def once(request: Request, writer: asyncio.StreamWriter) -> None:
            if any(earlier.connection == request.connection for earlier in server.requests[:-1]):
                writer.close()
            else:
                await answering()(request, writer)

        async with serving(once) as server:
            api = LlamaApi(ApiTarget(server.url))
            assert [(await api.get("health")).ok for _ in range(4)] == [True] * 4
            await api.aclose()
        assert server.connections == 4

    run(test())


def test_a_word_that_an_idle_connection_is_closed_is_no_answer() -> None:
    """Proxies send it unasked; here in the moment of the second request."""

    async def test() -> None:
        async def once(request: Request, writer: asyncio.StreamWriter) -> None:
            again = any(earlier.connection == request.connection for earlier in server.requests[:-1])
            await answering(b"", 408)(request, writer) if again else await answering()(request, writer)

        async with serving(once) as server:
            api = LlamaApi(ApiTarget(server.url))
            assert [(await api.get("health")).ok for _ in range(3)] == [True] * 3
            await api.aclose()

    run(test())


def test_a_new_connection_that_breaks_is_not_tried_twice() -> None:
    async def test() -> None:
        async with serving(raw(b"", close=True)) as server:
            await ask(server)
        assert len(server.requests) == 1

    run(test())


def test_a_restarted_server_is_asked_over_a_new_connection() -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            api = LlamaApi(ApiTarget(server.url))
            assert (await api.get("health")).ok
        async with serving(answering(), port=server.port) as second:
            assert (await api.get("health")).ok
            assert len(second.requests) == 1
        await api.aclose()

    run(test())


def test_a_second_request_to_an_endpoint_under_way_is_refused_and_others_are_not() -> None:
    async def test() -> None:
        behaviours = {"/slots": web.hanging, "/health": answering()}
        async with serving(web.by_path(behaviours)) as server:
            api = LlamaApi(ApiTarget(server.url, deadlines=PATIENT))
            first = asyncio.create_task(api.get("slots"))
            await server.arrived.wait()
            with pytest.raises(RuntimeError, match="under way"):
                await api.get("slots")
            assert (await api.get("health")).ok
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            assert server.asked("/slots") == 1
            second = asyncio.create_task(api.get("slots"))
            await until(lambda: server.asked("/slots") == 2)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
            await api.aclose()

    run(test())


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("behaviour", [web.hanging, web.one_byte_a_second, web.endless_chunks])
def test_failures_leave_no_connection_open(behaviour: Behaviour, scheme: str) -> None:
    """Over https the server never gets as far as a request: it waits for HTTP while the client waits for TLS."""

    async def test() -> None:
        async with serving(behaviour) as server:
            short = behaviour is not web.endless_chunks or scheme == "https"
            url = server.url.replace("http:", f"{scheme}:")
            api = LlamaApi(ApiTarget(url, deadlines=dict.fromkeys(DEADLINES, 0.1) if short else PATIENT))
            for _ in range(3):
                assert not (await api.get("health")).ok
            await until(lambda: own_sockets_to(server.port) == 0)
            await api.aclose()

    run(test())


def test_uses_no_proxy_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async def test() -> None:
        async with serving(answering()) as server:
            assert (await ask(server)).ok

    run(test())


def test_reaches_an_ipv6_address() -> None:
    async def test() -> None:
        try:
            async with serving(answering(), host="::1") as server:
                assert server.url == f"http://[::1]:{server.port}"
                assert (await ask(server)).ok
                assert server.requests[0].headers["host"] == f"[::1]:{server.port}"
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error}")

    run(test())


def test_reaches_a_unix_socket(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "llama.sock"
        async with serving(answering(), unix_socket=path) as server:
            assert (await ask(server, url="http://localhost:8080", unix_socket=path)).ok
        path.unlink(missing_ok=True)
        assert (await ask(server, url="http://localhost:8080", unix_socket=path)).reason == "refused"

    run(test())
