"""API keys and TLS: how the HTTP source gets in, and what it does when it cannot."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from kvexporter.sources.llama_api import ApiTarget, LlamaApi
from tests.support import http_servers as web
from tests.support.asking import SHORT, ask, https, run
from tests.support.http_servers import answering, raw, serving

# ---- the API key ----------------------------------------------------------------------------------------------------


def test_sends_the_key_and_takes_a_new_one_when_the_file_changes(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "key"
        file.write_text("\n  first-key \n")
        async with serving(answering()) as server:
            api = LlamaApi(ApiTarget(server.url, api_key_file=file))
            await api.get("slots")
            await api.get("slots")
            file.write_text("other-key\nsecond-of-the-file\n")
            await api.get("slots")
            replacement = tmp_path / "new"
            replacement.write_text("third-key")
            replacement.rename(file)
            await api.get("slots")
            await api.aclose()
        keys = [request.headers["authorization"] for request in server.requests]
        assert keys == ["Bearer first-key", "Bearer first-key", "Bearer other-key", "Bearer third-key"]

    run(test())


@pytest.mark.parametrize("content", [None, b"", b"\n \n", b"two\x00parts", b"a\x7fb"])
def test_without_a_usable_key_nothing_that_needs_one_is_asked(tmp_path: Path, content: bytes | None) -> None:
    async def test() -> None:
        file = tmp_path / "key"
        if content is not None:
            file.write_bytes(content)
        async with serving(answering()) as server:
            answer = await ask(server, "slots", api_key_file=file)
        assert answer.reason == "key_file"
        assert str(file) in answer.detail
        assert not server.requests

    run(test())


def test_whether_a_server_is_up_is_asked_without_a_key_where_that_cannot_be_read(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(answering()) as server:
            answer = await ask(server, "health", api_key_file=tmp_path / "none")
        assert answer.ok
        assert "authorization" not in server.requests[0].headers

    run(test())


def test_a_key_whose_file_goes_away_is_not_used_any_more(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "key"
        file.write_text("SECRET-key")
        async with serving(answering()) as server:
            api = LlamaApi(ApiTarget(server.url, api_key_file=file))
            assert (await api.get("slots")).ok
            file.unlink()
            assert (await api.get("slots")).reason == "key_file"
            file.write_text("again")
            assert (await api.get("slots")).ok
            await api.aclose()

    run(test())


def test_the_key_shows_in_no_repr_error_or_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def test() -> None:
        file = tmp_path / "key"
        file.write_text("SECRET-key")
        for behaviour in (answering(), answering(b"", 401), raw(b"nonsense", close=True), web.hanging):
            async with serving(behaviour) as server:
                api = LlamaApi(ApiTarget(server.url, api_key_file=file, deadlines=SHORT))
                answer = await api.get("slots")
                for thing in (api, api.target, answer, api._key):
                    assert "SECRET" not in repr(thing)
                await api.aclose()
        assert "SECRET" not in caplog.text

    run(test())


# ---- TLS ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> web.Certificates:
    return web.make_certificates(tmp_path_factory.mktemp("certificates"))


def test_accepts_a_certificate_of_the_given_authority(certificates: web.Certificates) -> None:
    async def test() -> None:
        async with serving(answering(), tls=certificates.server_context()) as server:
            assert (await ask(server, url=https(server), ca_file=certificates.ca)).ok

    run(test())


def test_refuses_a_certificate_of_an_unknown_authority_unless_told_not_to_verify(
    certificates: web.Certificates,
) -> None:
    async def test() -> None:
        async with serving(answering(), tls=certificates.server_context()) as server:
            answer = await ask(server, url=https(server))
            assert answer.reason == "tls"
            assert "certificate is not accepted" in answer.detail
            assert not server.requests
            assert (await ask(server, url=https(server), insecure_skip_verify=True)).ok

    run(test())


def test_verifies_the_name_asked_for_or_the_one_configured(certificates: web.Certificates) -> None:
    async def test() -> None:
        async with serving(answering(), tls=certificates.server_context()) as server:
            for name, reason in (("llm.example", None), ("other.example", "tls")):
                answer = await ask(server, url=https(server), ca_file=certificates.ca, tls_server_name=name)
                assert answer.reason == reason

    run(test())


def test_shows_a_client_certificate_and_fails_without_one(certificates: web.Certificates) -> None:
    async def test() -> None:
        async with serving(answering(), tls=certificates.server_context(client_required=True)) as server:
            files: dict[str, Any] = {"cert_file": certificates.client, "key_file": certificates.client_key}
            assert (await ask(server, url=https(server), ca_file=certificates.ca, **files)).ok
            answer = await ask(server, url=https(server), ca_file=certificates.ca)
            assert answer.reason in ("tls", "connection")  # whether the alert or the closing is seen first

    run(test())


def test_tls_to_a_port_without_it_is_a_tls_failure() -> None:
    async def test() -> None:
        async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()

        listener = await asyncio.start_server(greets, "127.0.0.1", 0)
        api = LlamaApi(ApiTarget(f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"))
        answer = await api.get("health")
        assert answer.reason == "tls"
        await api.aclose()
        listener.close()

    run(test())


@pytest.mark.parametrize("field", ["ca_file", "cert_file"])
@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_unusable_tls_file_fails_the_poll_and_is_named(tmp_path: Path, field: str, content: str | None) -> None:
    async def test() -> None:
        file = tmp_path / "file.pem"
        if content is not None:
            file.write_text(content)
        api = LlamaApi(ApiTarget("https://127.0.0.1:1", **{field: file}))  # type: ignore[arg-type]
        answer = await api.get("health")
        assert answer.reason == "tls"
        assert str(file) in answer.detail
        await api.aclose()

    run(test())


def test_a_replaced_authority_is_taken_without_a_restart(certificates: web.Certificates, tmp_path: Path) -> None:
    async def test() -> None:
        ca = tmp_path / "ca.pem"
        async with serving(answering(), tls=certificates.server_context()) as server:
            api = LlamaApi(ApiTarget(https(server), ca_file=ca))
            assert (await api.get("health")).reason == "tls"
            ca.write_bytes(certificates.ca.read_bytes())
            assert (await api.get("health")).ok
            ca.unlink()
            assert (await api.get("health")).reason == "tls"
            await api.aclose()

    run(test())
