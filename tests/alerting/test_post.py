"""Posting to receivers that misbehave: a reason in words of our own, in time, and nothing leaks."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from kvexporter.alerting.post import Poster
from kvexporter.config_alerting import BasicAuthConfig
from tests.support.asking import run
from tests.support.http_servers import (
    Behaviour,
    answering,
    endless_chunks,
    endless_headers,
    hanging,
    one_byte_a_second,
    raw,
    serving,
    until,
)
from tests.support.paths import free_port


def posted(behaviour: Behaviour, timeout: float = 20.0, *, closed: bool = True) -> str | None:
    outcome: list[str | None] = []

    async def test() -> None:
        async with serving(behaviour) as server:
            outcome.append(await Poster(f"{server.url}/hook", timeout=timeout).post(b"[]"))
            if closed:
                await until(lambda: server.open_connections == 0)

    run(test())
    return outcome[0]


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_a_good_answer_is_success(status: int) -> None:
    assert posted(answering(b"" if status == 204 else b"{}", status)) is None


def test_an_endless_answer_is_not_read_to_its_end() -> None:
    assert posted(endless_chunks) is None


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (answering(b"token hunter2", 400), "HTTP status 400"),
        (answering(b"", 302, "Location: http://127.0.0.1/\r\n"), "HTTP status 302, a redirect; none is followed"),
        (raw(b"hello", close=True), "closed before the answer was complete, or this is not HTTP"),
        (endless_headers, "response headers of more than 100 KiB"),
    ],
    ids=["refused", "redirected", "not HTTP", "endless headers"],
)  # fmt: skip
def test_a_bad_answer_is_a_reason_in_words_of_our_own(behaviour: Behaviour, reason: str) -> None:
    assert posted(behaviour) == reason


def test_who_answers_too_slowly_is_given_up_and_the_connection_closed() -> None:
    assert posted(one_byte_a_second, timeout=0.3) == "no complete answer within 0.3 s"


def test_who_does_not_answer_is_given_up() -> None:
    # This server looks at its connection no more, so it does not see that it was closed.
    assert posted(hanging, timeout=0.3, closed=False) == "no complete answer within 0.3 s"


def test_nothing_listens() -> None:
    assert asyncio.run(Poster(f"http://127.0.0.1:{free_port()}").post(b"[]")) == "nothing listens there"


def test_a_tls_exchange_that_hangs_leaves_no_connection() -> None:
    async def test() -> None:
        async with serving(hanging) as server:  # speaks no TLS: waits for the end of a request that never comes
            url = server.url.replace("http:", "https:")
            began = time.monotonic()
            assert await Poster(url, timeout=0.3).post(b"[]") == "no complete answer within 0.3 s"
            assert time.monotonic() - began < 20
            await until(lambda: server.open_connections == 0)

    run(test())


def test_the_password_is_read_anew_and_a_missing_one_says_which_file(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "password"
        async with serving(answering(b"{}")) as server:
            poster = Poster(server.url, basic_auth=BasicAuthConfig("me", file))
            assert await poster.post(b"[]") == f"{file}: No such file or directory"
            file.write_text("one\n")
            assert await poster.post(b"[]") is None
            file.write_text("second\n")
            assert await poster.post(b"[]") is None
            # me:one and me:second
            assert [one.headers["authorization"] for one in server.requests] == ["Basic bWU6b25l", "Basic bWU6c2Vjb25k"]

    run(test())


@pytest.mark.parametrize("text", ["no url", "ftp://example", "http://me:hunter2@example/", "http://exa mple/"])
def test_a_file_that_holds_no_address_says_so_without_repeating_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "address"
    file.write_text(text)
    reason = asyncio.run(Poster(None, url_file=file).post(b"[]"))
    assert reason is not None
    assert "url_file" in reason
    assert text not in reason
