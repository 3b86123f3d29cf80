"""The web configuration is read again without a restart, and what cannot be used opens no door."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import ssl
import time
from pathlib import Path

import httpx
import pytest

from kvexporter.web import live_config
from kvexporter.web.config_file import WebConfig, load_web_config
from kvexporter.web.live_config import FRESH_SECONDS, LiveWebConfig
from tests.support.certificates import Authority, make_server_files
from tests.support.dead_disk import unanswering
from tests.support.web_server import ALICE, TLS, RunningWeb

VERIFIED = "  client_ca_file: ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live")
    make_server_files(folder).sign("client", client=True)
    other = Authority(folder / "new")
    other.sign("server", "DNS:localhost")
    other.sign("client", client=True)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "web")
    return tmp_path / "web"


def web(folder: Path, text: str) -> RunningWeb:
    (folder / "web.yml").write_text(text)
    return RunningWeb(folder / "web.yml")


def age(folder: Path, seconds: float = 60.0) -> None:
    """Give all files an older time, so that they count as settled."""
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - seconds,) * 2)


def looked_at(live: LiveWebConfig) -> LiveWebConfig:
    asyncio.run(live.look())
    return live


def connects(running: RunningWeb, folder: Path, client: Path | None = None) -> int:
    shown: list[str | Path] = ["--cert", client, "--key", client.with_suffix(".key")] if client is not None else []
    return running.curl("--cacert", folder / "ca.crt", *shown)[0]


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_renewed_certificate_is_shown_to_the_next_connection(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with web(folder, TLS) as running:
        assert connects(running, folder) == 200
        for name in ("server.crt", "server.key"):
            shutil.copy(folder / "new" / name, folder / name)
        assert connects(running, folder) == 0, "it is from another authority"
        assert connects(running, folder / "new") == 200
    assert errors(caplog) == []


def test_a_certificate_replaced_by_renaming_with_an_old_time_is_noticed(folder: Path) -> None:
    age(folder)
    with web(folder, TLS) as running:
        age(folder)
        assert connects(running, folder) == 200
        for name in ("server.crt", "server.key"):
            (folder / "new" / name).rename(folder / name)
        assert connects(running, folder / "new") == 200


def test_half_of_a_renewal_leaves_the_old_certificate_and_is_said_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with web(folder, TLS) as running:
        shutil.copy(folder / "new" / "server.crt", folder / "server.crt")
        assert [connects(running, folder) for _ in range(3)] == [200] * 3
        said = errors(caplog)
        assert len(said) == 1
        assert "the old one stays" in said[0]
        assert "expected the certificate of the key" in said[0]
        shutil.copy(folder / "new" / "server.key", folder / "server.key")
        assert connects(running, folder / "new") == 200
        assert len(errors(caplog)) == 1


@pytest.mark.parametrize("loss", ["removed", "damaged", "empty"])
def test_a_lost_certificate_leaves_the_old_one(folder: Path, loss: str, caplog: pytest.LogCaptureFixture) -> None:
    with web(folder, TLS) as running:
        if loss == "removed":
            (folder / "server.crt").unlink()
        else:
            (folder / "server.crt").write_bytes((folder / "damaged.crt").read_bytes() if loss == "damaged" else b"")
        assert [connects(running, folder) for _ in range(2)] == [200] * 2
    assert len(errors(caplog)) == 1


@pytest.mark.parametrize("broken", ["basic_auth_users: [\n", "basic_auth_users:\n  alice: hunter2\n", None])
def test_a_file_that_cannot_be_used_answers_nobody_and_is_said_once(
    folder: Path, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with web(folder, TLS) as running:
        assert connects(running, folder) == 200
        if broken is None:
            running.file.unlink()
        else:
            running.write(broken)
        for path in ("/metrics", "/", "/-/healthy"):
            status, text = running.curl("--cacert", folder / "ca.crt", path=path)
            assert status == 500
            assert "kvexporter's log says why" in text
            assert "llama_" not in text
            assert str(folder) not in text
        assert len(errors(caplog)) == 1
        assert "hunter2" not in caplog.text
        running.write(TLS)
        assert connects(running, folder) == 200
        assert len(errors(caplog)) == 1


def test_an_authority_of_clients_that_cannot_be_used_answers_nobody(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with web(folder, TLS + VERIFIED) as running:
        shutil.copy(folder / "ca.crt", folder / "kept.crt")
        assert connects(running, folder, folder / "client.crt") == 200
        (folder / "ca.crt").write_text("")
        status, _ = running.curl(
            "--cacert", folder / "kept.crt", "--cert", folder / "client.crt", "--key", folder / "client.key"
        )
        assert status == 500
        assert len(errors(caplog)) == 1


def test_a_changed_authority_lets_in_the_new_clients_only(folder: Path) -> None:
    old, new = folder / "client.crt", folder / "new" / "client.crt"
    (folder / "clients.crt").write_bytes((folder / "ca.crt").read_bytes())
    with web(folder, TLS + VERIFIED.replace("ca.crt", "clients.crt")) as running:
        assert [connects(running, folder, client) for client in (old, new)] == [200, 0]
        (folder / "clients.crt").write_bytes((folder / "new" / "ca.crt").read_bytes())
        assert [connects(running, folder, client) for client in (old, new)] == [0, 200]


def test_tls_and_users_can_be_turned_on_and_off_while_it_runs(folder: Path) -> None:
    with web(folder, "") as running:
        assert running.curl(scheme="http")[0] == 200
        running.write(TLS + ALICE)
        assert running.curl(scheme="http")[0] == 0
        assert connects(running, folder) == 401
        running.write("")
        assert running.curl(scheme="http")[0] == 200
        assert connects(running, folder) == 0


def test_a_kept_connection_ends_when_the_rules_by_which_it_was_let_in_change(folder: Path) -> None:
    with web(folder, TLS + VERIFIED) as running:
        context = ssl.create_default_context(cafile=folder / "ca.crt")
        context.load_cert_chain(folder / "client.crt", folder / "client.key")
        url = f"https://localhost:{running.port}/metrics"
        with httpx.Client(verify=context, trust_env=False, timeout=20) as client:
            assert client.get(url).status_code == 200
            assert client.get(url).status_code == 200
            assert running.ask(lambda: running.server.connections) == 1
            (folder / "web.yml").write_text(TLS + VERIFIED.replace("ca.crt", "new/ca.crt"))
            with pytest.raises(httpx.TransportError):
                client.get(url)
        assert connects(running, folder, folder / "new" / "client.crt") == 200


def test_a_kept_connection_stays_when_only_users_change(folder: Path) -> None:
    with web(folder, TLS) as running:
        context = ssl.create_default_context(cafile=folder / "ca.crt")
        url = f"https://localhost:{running.port}/metrics"
        with httpx.Client(verify=context, trust_env=False, timeout=20) as client:
            assert client.get(url).status_code == 200
            made = running.ask(lambda: running.live.context)
            running.write(TLS + ALICE)
            assert client.get(url).status_code == 401
            assert running.ask(lambda: running.live.context) is made


def test_settled_files_are_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "web.yml").write_text(TLS + ALICE)
    age(folder)
    live = LiveWebConfig(folder / "web.yml")
    reads: list[Path] = []

    def load(path: Path) -> tuple[WebConfig, tuple[str, ...]]:
        reads.append(path)
        return load_web_config(path)

    monkeypatch.setattr(live_config, "load_web_config", load)
    first = live.context
    for _ in range(100):
        assert looked_at(live).context is first
    assert reads == []
    os.utime(folder / "server.key")
    assert looked_at(live).context is first, "nothing but the time has changed"
    assert reads


def test_a_second_change_within_one_tick_of_the_file_system_is_noticed(folder: Path) -> None:
    path = folder / "web.yml"
    path.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")
    now = path.stat().st_mtime
    live = LiveWebConfig(path, lambda: now + FRESH_SECONDS / 2)
    before = path.stat()
    path.write_text("http_server_config: {headers: {X-XSS-Protection: '0'}}\n"[:55])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert looked_at(live).config is not None
    assert live.config is not None
    assert live.config.http_server_config.headers == {"X-XSS-Protection": "0"}


@pytest.mark.parametrize("name", ["web.yml", "server.crt"])
def test_files_that_do_not_answer_keep_nobody_waiting_and_all_as_it_was(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(live_config, "LOOK_SECONDS", 0.5)
    with web(folder, TLS + ALICE) as running:
        assert connects(running, folder) == 401
        with unanswering(folder / name):
            for _ in range(3):
                assert connects(running, folder) == 401
            alice = running.curl("--cacert", folder / "ca.crt", "--user", "alice:fakepassword")
            assert alice[0] == 200
        running.write(TLS)
        give_up = time.monotonic() + 30
        while connects(running, folder) != 200:
            assert time.monotonic() < give_up
    # What the pipe gave at its end may have been said as well: it is no certificate.
    said = [message for message in errors(caplog) if "does not answer" in message]
    assert said == ["web configuration cannot be read: its disk or network does not answer; the last one stays"]
