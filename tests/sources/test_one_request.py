"""Single requests: what goes out, and what is made of servers that misbehave."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kvexporter.sources.api_target import ApiTarget
from kvexporter.sources.one_request import BODY_BOUND, Answered, request
from tests.support import http_servers as web
from tests.support.asking import run
from tests.support.http_servers import Behaviour, answering, raw, serving


def asked(behaviour: Behaviour, deadline: float = 30.0) -> Answered:
    async def ask() -> Answered:
        async with serving(behaviour) as server:
            return await request(ApiTarget(server.url), "props", deadline)

    return asyncio.run(asyncio.wait_for(ask(), 60))


def test_path_query_and_key_go_out_below_the_servers_own_path(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")

    async def test() -> None:
        async with serving(answering(b'{"a": 1}')) as server:
            target = ApiTarget(server.url + "/llama/", api_key_file=tmp_path / "key")
            answer = await request(target, "props", 30, query={"model": "a+b", "autoload": "false"})
        (got,) = server.requests
        assert got.target == "/llama/props?model=a%2Bb&autoload=false"
        assert got.headers["authorization"] == "Bearer secret"
        assert (answer.status, json.loads(answer.body)) == (200, {"a": 1})
        assert "secret" not in repr(answer)

    run(test())


def test_an_error_s_status_is_handed_on_and_a_redirect_not_followed() -> None:
    assert asked(answering(b"{}", 503)).status == 503
    assert asked(raw(b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n")).status == 302


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (web.endless_chunks, f"more than {BODY_BOUND} bytes"),
        (raw(b"SSH-2.0-OpenSSH\r\n", close=True), "this is not HTTP"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", close=True), "closed before the answer was complete"),
    ],
)
def test_a_server_that_misbehaves_gives_no_answer_but_words(behaviour: Behaviour, words: str) -> None:
    answer = asked(behaviour)
    assert answer.problem
    assert words in answer.problem
    assert (answer.body, answer.hopeless) == (b"", False)


@pytest.mark.parametrize("behaviour", [web.hanging, web.one_byte_a_second])
def test_the_deadline_is_for_the_whole_answer(behaviour: Behaviour) -> None:
    assert asked(behaviour, 1.0) == Answered(None, problem="no complete answer within 1 s")


def test_a_missing_key_file_is_hopeless_and_nothing_is_asked(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            answer = await request(ApiTarget(server.url, api_key_file=tmp_path / "none"), "props", 30)
        assert answer.hopeless
        assert str(tmp_path / "none") in answer.problem
        assert not server.requests

    run(test())
