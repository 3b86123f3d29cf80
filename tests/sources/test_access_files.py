"""Key files and certificates on a disk that does not answer: nobody hangs, and what was read before is used."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from kvexporter.alerting.post import Poster
from kvexporter.config_alerting import BasicAuthConfig
from kvexporter.sources import access_files
from kvexporter.sources.access_files import KeyFile
from kvexporter.sources.api_target import AccessError, ApiTarget
from kvexporter.sources.llama_api import LlamaApi
from tests.support.asking import run
from tests.support.dead_disk import unanswering
from tests.support.http_servers import answering, serving

HANGS = "it cannot be read: its disk or network does not answer"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_files, "FILE_SECONDS", 0.3)


async def eventually(file: KeyFile, key: bytes) -> None:
    async with asyncio.timeout(30):
        while await file.read() != key:  # noqa: ASYNC110 - a file tells nobody that it can be read again
            await asyncio.sleep(0.01)


def test_a_key_that_hangs_from_the_start_is_named_and_used_once_it_can_be_read(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "key"
        file = KeyFile(path)
        with unanswering(path):
            for _ in range(3):
                with pytest.raises(AccessError) as caught:
                    await file.read()
                assert (caught.value.reason, caught.value.detail) == ("key_file", f"{path}: {HANGS}")
        path.write_text("SECRET\n")
        async with asyncio.timeout(30):
            while True:
                try:
                    assert await file.read() == b"SECRET"
                    return
                except AccessError:
                    await asyncio.sleep(0.01)

    run(test())


def test_a_key_that_hangs_later_stays_in_use_which_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        path = tmp_path / "key"
        path.write_text("one\n")
        monkeypatch.setattr(access_files, "FILE_SECONDS", 30.0)
        file = KeyFile(path)
        assert await file.read() == b"one"
        with unanswering(path):
            for _ in range(5):
                assert await file.read(0.3) == b"one"
        path.write_text("second\n")
        await eventually(file, b"second")

    run(test())
    assert [record.getMessage() for record in caplog.records if record.name == access_files.__name__] == [
        f"{tmp_path}/key: {HANGS}; what was read before stays in use",
        f"{tmp_path}/key can be read again",
    ]


def test_a_key_that_hangs_keeps_nobody_from_asking_whether_the_server_is_up(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "key"
        with unanswering(path):
            async with serving(answering()) as server:
                api = LlamaApi(ApiTarget(server.url, api_key_file=path))
                assert (await api.get("health")).ok
                answer = await api.get("slots")
                assert (answer.reason, answer.detail) == ("key_file", f"{path}: {HANGS}")
                await api.aclose()

    run(test())


@pytest.mark.parametrize("name", ["ca_file", "cert_file"])
def test_certificates_that_hang_fail_the_poll_and_are_named(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        path = tmp_path / "file.pem"
        with unanswering(path):
            api = LlamaApi(ApiTarget("https://127.0.0.1:1", **{name: path}))  # type: ignore[arg-type]
            answer = await api.get("health")
            assert (answer.reason, answer.detail) == ("tls", f"{path}: {HANGS}")
            await api.aclose()

    run(test())


def test_a_password_that_hangs_fails_the_post_and_is_named(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "password"
        with unanswering(path):
            poster = Poster("http://127.0.0.1:1", basic_auth=BasicAuthConfig("me", path), timeout=30)
            assert await poster.post(b"[]") == f"{path}: {HANGS}"

    run(test())
