"""The event stream: news when there is any, heartbeats else, bounded clients, and no cost without them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import kvexporter.web.events as events_module
from kvexporter.snapshot import ExporterSnapshot, ServerSnapshot
from kvexporter.web.events import MAX_CLIENTS, EventHub
from kvexporter.web.protocol import BoundedProtocol
from tests.support.live_page import LivePage
from tests.support.paths import wait_for
from tests.support.snapshots import FULL, UNKNOWN, exporter
from tests.support.web_server import ALICE, BOB

Event = tuple[str, dict[str, Any]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, so that tests are short; what is looked at is the same."""
    monkeypatch.setattr(events_module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(events_module, "HEARTBEAT_SECONDS", 0.4)


def parse(chunk: bytes) -> Event:
    fields = dict(line.split(": ", 1) for line in chunk.decode().splitlines() if line)
    return fields["event"], json.loads(fields["data"])


class Shown:
    """What the hub shows; counts how often it looked."""

    def __init__(self, *servers: ServerSnapshot) -> None:
        self.snapshot = exporter(*servers)
        self.looks = 0

    def __call__(self) -> ExporterSnapshot:
        self.looks += 1
        return self.snapshot


async def next_of(stream: AsyncIterator[bytes], *kinds: str) -> Event:
    """The next event, heartbeats left out unless asked for."""
    async with asyncio.timeout(30):
        while True:
            event = parse(await anext(stream))
            if event[0] in kinds or event[0] != "heartbeat":
                return event


def test_a_client_is_told_everything_first_and_then_only_what_changes() -> None:
    async def story() -> None:
        shown = Shown(FULL, UNKNOWN)
        async with aclosing(EventHub(shown, lambda: True).stream()) as stream:
            kind, data = await next_of(stream)
            assert kind == "servers"
            assert [server["name"] for server in data["servers"]] == ["main", "far"]
            assert data["exporter"]["ready"] is True

            shown.snapshot = replace(exporter(FULL, replace(UNKNOWN, state="ready")), at=1790000102.0)
            kind, data = await next_of(stream)
            assert kind == "changes"
            assert [server["name"] for server in data["servers"]] == ["far"]
            assert data["at"] == "2026-09-21T14:15:02.000Z"
            assert "exporter" not in data

    asyncio.run(story())


def test_when_servers_come_or_go_everything_is_told_anew() -> None:
    async def story() -> None:
        shown = Shown(FULL)
        async with aclosing(EventHub(shown, lambda: True).stream()) as stream:
            await next_of(stream)
            shown.snapshot = exporter(FULL, UNKNOWN)
            kind, data = await next_of(stream)
            assert (kind, len(data["servers"])) == ("servers", 2)
            shown.snapshot = exporter(UNKNOWN)
            kind, data = await next_of(stream)
            assert (kind, [server["name"] for server in data["servers"]]) == ("servers", ["far"])

    asyncio.run(story())


def test_the_exporters_own_state_is_told_when_it_changes() -> None:
    async def story() -> None:
        shown = Shown(FULL)
        async with aclosing(EventHub(shown, lambda: True).stream()) as stream:
            await next_of(stream)
            shown.snapshot = replace(shown.snapshot, journal_gaps=0)
            kind, data = await next_of(stream)
            assert (kind, data["servers"]) == ("changes", [])
            assert {problem["subject"] for problem in data["exporter"]["problems"]} == {"process"}

    asyncio.run(story())


def test_while_nothing_changes_there_are_only_heartbeats() -> None:
    async def story() -> None:
        async with aclosing(EventHub(Shown(FULL), lambda: True).stream()) as stream:
            await next_of(stream)
            for _ in range(3):
                kind, data = await next_of(stream, "heartbeat")
                assert (kind, data) == ("heartbeat", {"at": "2026-09-21T14:15:01.000Z"})

    asyncio.run(story())


def test_a_client_that_is_slow_gets_the_latest_state_and_not_each_step() -> None:
    async def story() -> None:
        shown = Shown(FULL)
        async with aclosing(EventHub(shown, lambda: True).stream()) as stream:
            await next_of(stream)
            for waiting in range(20):
                shown.snapshot = exporter(replace(FULL, requests_deferred=waiting))
                await asyncio.sleep(0.06)
            seen: list[int] = []
            while not seen or seen[-1] != 19:
                _, data = await next_of(stream)
                seen.append(data["servers"][0]["requests_deferred"])
            assert len(seen) <= 2

    asyncio.run(story())


def test_without_clients_nobody_looks() -> None:
    async def story() -> None:
        shown = Shown(FULL)
        hub = EventHub(shown, lambda: True)
        async with aclosing(hub.stream()) as stream:
            await next_of(stream)
        looks = shown.looks
        await asyncio.sleep(0.5)
        assert shown.looks == looks
        assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "events"] == []

    asyncio.run(story())


def test_ten_clients_cost_as_many_looks_as_one() -> None:
    async def story() -> None:
        shown = Shown(FULL)
        hub = EventHub(shown, lambda: True)
        streams = [hub.stream() for _ in range(MAX_CLIENTS)]
        for stream in streams:
            await next_of(stream)
        assert hub.full
        # One more, that came in the same moment as the last, has no room.
        assert [event async for event in hub.stream()] == []
        looks, started = shown.looks, asyncio.get_running_loop().time()
        await asyncio.sleep(0.5)
        assert shown.looks - looks <= (asyncio.get_running_loop().time() - started) / 0.05 + 1
        for stream in streams:
            await stream.aclose()
        assert not hub.full

    asyncio.run(story())


def test_an_error_while_looking_ends_no_stream() -> None:
    async def story() -> None:
        shown = Shown(FULL)
        broken = [True]

        def sometimes() -> bool:
            if shown.looks > 1 and broken.pop():
                raise RuntimeError("for once")
            return True

        async with aclosing(EventHub(shown, sometimes).stream()) as stream:
            await next_of(stream)
            shown.snapshot = exporter(UNKNOWN)
            broken.append(False)
            broken.extend([False] * 1000)
            kind, _ = await next_of(stream)
            assert kind == "servers"

    asyncio.run(story())


# ---- over real sockets


def events_of(answer: httpx.Response) -> Any:
    """Each event of a stream as it comes."""
    lines: list[str] = []
    for line in answer.iter_lines():
        if line:
            lines.append(line)
        elif any(each.startswith("event:") for each in lines):
            yield parse("\n".join(each for each in lines if not each.startswith("retry")).encode())
            lines = []
        else:
            lines = []


def test_a_stream_is_one_that_browsers_understand() -> None:
    with LivePage(exporter(FULL)) as page, httpx.stream("GET", f"{page.url}/api/v1/events", trust_env=False) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert "content-encoding" not in answer.headers
        told = events_of(answer)
        assert next(told)[0] == "servers"
        page.shown = exporter(UNKNOWN)
        assert next(told)[1]["servers"][0]["name"] == "far"


def test_a_stream_outlives_the_time_that_a_request_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "seconds", 0.8)
    with (
        LivePage(exporter(FULL)) as page,
        httpx.stream("GET", f"{page.url}/api/v1/events", trust_env=False, timeout=30) as answer,
    ):
        told = events_of(answer)
        # A heartbeat each 0.4 s: far longer than a request may take.
        assert [next(told)[0] for _ in range(8)] == ["servers"] + ["heartbeat"] * 7


def test_one_stream_too_many_is_refused_and_scrapes_go_on() -> None:
    with LivePage(exporter(FULL)) as page, httpx.Client(trust_env=False, timeout=30) as client:
        with ExitStack() as streams:
            kept = []  # an iteration that is dropped ends its stream
            for _ in range(MAX_CLIENTS):
                kept.append(events_of(streams.enter_context(client.stream("GET", f"{page.url}/api/v1/events"))))
                assert next(kept[-1])[0] == "servers"
            with client.stream("GET", f"{page.url}/api/v1/events") as refused:
                assert refused.status_code == 503
                assert refused.headers["retry-after"]
                assert "/api/v1/servers" in json.loads(refused.read())["error"]
            assert client.get(f"{page.url}/metrics").status_code == 200
            assert client.get(f"{page.url}/api/v1/servers").status_code == 200

        def has_room() -> bool:
            with client.stream("GET", f"{page.url}/api/v1/events") as answer:
                return answer.status_code == 200

        wait_for("room for another stream", has_room)


def test_when_its_client_is_gone_nothing_is_left_of_a_stream() -> None:
    with LivePage(exporter(FULL)) as page:
        with httpx.stream("GET", f"{page.url}/api/v1/events", trust_env=False) as answer:
            told = events_of(answer)
            next(told)
            assert "events" in page.tasks()
        wait_for("the stream to end", lambda: "events" not in page.tasks() and page.connections == 0)


def test_a_client_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "seconds", 1.0)
    many = [replace(FULL, name=f"server-{number}") for number in range(200)]
    with LivePage(exporter(*many)) as page, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", page.port))
        client.sendall(b"GET /api/v1/events HTTP/1.1\r\nhost: x\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        for step in range(1000):
            page.shown = exporter(*(replace(server, requests_deferred=step) for server in many))
            if not page.connections:
                break
            client.settimeout(0.05)
            try:
                wait_for("the client to be cut off", lambda: not page.connections, deadline=0.05, interval=0.02)
            except AssertionError:
                continue
        assert page.connections == 0
        wait_for("the stream to end", lambda: "events" not in page.tasks())


def test_a_stream_ends_when_its_user_is_no_longer_let_in(tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(ALICE + BOB)
    with LivePage(exporter(FULL), config) as page:
        url = f"{page.url}/api/v1/events"
        with httpx.stream("GET", url, trust_env=False, timeout=30, auth=("bob", "U*U")) as answer:
            told = events_of(answer)
            assert next(told)[0] == "servers"
            config.write_text(ALICE)
            assert [event for event, _ in told if event != "heartbeat"] == []  # it ends
        assert httpx.get(url, trust_env=False, timeout=30, auth=("bob", "U*U")).status_code == 401


def test_a_stream_goes_on_when_the_web_configuration_is_touched_only(tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(ALICE)
    with (
        LivePage(exporter(FULL), config) as page,
        httpx.stream(
            "GET", f"{page.url}/api/v1/events", trust_env=False, timeout=30, auth=("alice", "fakepassword")
        ) as answer,
    ):
        told = events_of(answer)
        next(told)
        config.write_text(ALICE)
        assert [next(told)[0] for _ in range(3)] == ["heartbeat"] * 3


def test_the_exporters_end_does_not_wait_for_streams() -> None:
    page = LivePage(exporter(FULL))
    with page, httpx.stream("GET", f"{page.url}/api/v1/events", trust_env=False, timeout=30) as answer:
        told = events_of(answer)
        next(told)
        page.stop()
        with pytest.raises(httpx.RemoteProtocolError):
            for _ in told:
                pass
