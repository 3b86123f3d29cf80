"""Polling the real llama-server: every endpoint is reached, and a server that may sleep sleeps on time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from kvexporter.facts import Endpoint, PollReason
from kvexporter.poller import ServerPoller
from kvexporter.polling import PollPolicy, ServerHints
from kvexporter.sources.llama_api import DEADLINES, ApiAnswer, ApiTarget, LlamaApi
from tests.support.asking import run
from tests.support.http_servers import until
from tests.support.llama_server import RealLlamaServer

pytestmark = pytest.mark.real_server


def test_reaches_every_endpoint_under_a_prefix_with_the_servers_own_key_file(tmp_path: Path) -> None:
    key, wrong = tmp_path / "keys", tmp_path / "wrong"
    key.write_text("first-key\nsecond-key\n")
    wrong.write_text("no-such-key")

    async def test(port: int) -> None:
        async def reasons(target: ApiTarget) -> dict[Endpoint, PollReason | None]:
            api = LlamaApi(target)
            answers = {endpoint: (await api.get(endpoint)).reason for endpoint in DEADLINES}
            await api.aclose()
            return answers

        url = f"http://127.0.0.1:{port}/llama"
        with_key = ApiTarget(url, api_key_file=key)
        async with asyncio.timeout(30):
            while (await reasons(with_key))["health"] is not None:  # noqa: ASYNC110 - it starts meanwhile
                await asyncio.sleep(0.1)
        assert set((await reasons(with_key)).values()) == {None}
        for target in (ApiTarget(url), ApiTarget(url, api_key_file=wrong)):
            # Behind a prefix even /health demands the key.
            assert set((await reasons(target)).values()) == {"unauthorized"}

    server = RealLlamaServer(
        "-c", "1024", "-np", "2", "--metrics", "--api-key-file", str(key), "--api-prefix", "/llama"
    )
    try:
        server.start(wait=False)  # it would be waited for without the prefix
        run(test(server.port))
    finally:
        server.stop()


def test_tells_endpoints_that_are_switched_off() -> None:
    async def test(port: int) -> None:
        api = LlamaApi(ApiTarget(f"http://127.0.0.1:{port}"))
        assert (await api.get("slots")).reason == "unsupported"
        assert (await api.get("metrics")).reason == "unsupported"
        await api.aclose()

    with RealLlamaServer("-c", "1024", "--no-slots") as server:
        run(test(server.port))


def test_a_server_of_unknown_options_goes_to_sleep_and_stays_asleep_while_polled() -> None:
    hints = ServerHints(needs_props=True)
    sleeping: list[bool] = []

    def deliver(endpoint: Endpoint, answer: ApiAnswer) -> PollReason | None:
        nonlocal hints
        if endpoint == "props" and answer.ok:
            sleeping.append(msgspec.json.decode(answer.body)["is_sleeping"])
            hints = replace(hints, sleeping=sleeping[-1])
        return None

    async def test(server: RealLlamaServer) -> None:
        api = LlamaApi(ApiTarget(f"http://127.0.0.1:{server.port}"))
        poller = ServerPoller("main", api, PollPolicy(0.1, 0.2), lambda: hints, deliver)
        poller.start()
        await until(lambda: True in sleeping)
        asleep = len(sleeping)
        await until(lambda: len(sleeping) >= asleep + 25)  # five seconds and more
        await poller.aclose()
        await api.aclose()
        assert all(sleeping[asleep:])

    with RealLlamaServer("-c", "1024", "--sleep-idle-seconds", "2") as server:
        run(test(server))
        assert "exiting sleeping state" not in server.log()
