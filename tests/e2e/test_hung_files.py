"""The real daemon with its files on a disk that really hangs, before or after it starts: all else goes on.

See tests/support/hanging_disk.py. Each waits as long as the daemon does in earnest, so this takes some minutes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from kvexporter.daemon import CONFIG_SECONDS
from kvexporter.headers import READ_SECONDS
from kvexporter.reading.link import SILENT_SECONDS
from tests.support.background import background_servers
from tests.support.beside_hanging import COUNT, Scraping, config, line, notified, wait_held, with_journal
from tests.support.exporter import Exporter
from tests.support.hanging_disk import HangingDisk, hanging_disk
from tests.support.http_servers import Request, answering, by_path
from tests.support.journal_entries import entry
from tests.support.journal_files import LiveJournalFile, journal_from_export
from tests.support.paths import RECORDINGS, free_port, wait_for
from tests.support.tiny_model import KV_BYTES_PER_TOKEN_F16, tiny_model
from tests.support.webhook_receiver import WebhookReceiver

SLOTS = b'[{"id":0,"id_task":7,"n_ctx":4096,"is_processing":true,"n_prompt_tokens":1234,"next_token":{"n_decoded":5}}]'
PROPS = b'{"default_generation_settings":{"n_ctx":4096},"total_slots":1,"build_info":"b11434-0","model_path":"m.gguf"}'
WEB_HANGS = "web configuration cannot be read: its disk or network does not answer; the last one stays"
GIVEN_UP = "bad: nothing is computed from its model's file"
PATHS = {"/health": answering(), "/props": answering(PROPS), "/slots": answering(SLOTS)}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[HangingDisk]:
    with hanging_disk(tmp_path / "hanging") as made:
        yield made


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[HangingDisk]]:
    with ExitStack() as stack:
        yield [stack.enter_context(hanging_disk(tmp_path / name)) for name in ("one", "two", "three")]


@pytest.fixture
def good(tmp_path: Path) -> Iterator[LiveJournalFile]:
    """The journal of a server whose disk is well."""
    with LiveJournalFile(tmp_path / "good", unit="good.service") as journal:
        journal.write(line(0))
        yield journal


@contextmanager
def starting(exporter: Exporter) -> Iterator[Exporter]:
    """The exporter, which may never be ready."""
    exporter.launch()
    try:
        yield exporter
    finally:
        exporter.__exit__(None, None, None)


@contextmanager
def process_of_server(folder: Path, model: Path, port: int) -> Iterator[None]:
    """A process that looks like a llama-server with this model, to whoever does not ask it anything."""
    # A script is none, whatever it calls itself: this is a program of that name.
    program, script = folder / "llama-server", folder / "standin.py"
    shutil.copy(Path(sys.executable).resolve(), program)
    script.write_text(
        "import socket, sys, time\nkept = socket.create_server(('127.0.0.1', int(sys.argv[-1])))\ntime.sleep(600)\n"
    )
    libraries = str(sysconfig.get_config_var("LIBDIR"))
    process = subprocess.Popen(
        [program, script, "-m", model, "-c", "4096", "-np", "1", "--port", str(port)],
        env={**os.environ, "PYTHONHOME": sys.base_prefix, "LD_LIBRARY_PATH": libraries},
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


# ---- while it runs -------------------------------------------------------------------------------------------------


def test_a_model_file_that_hangs_holds_up_nothing_and_is_read_when_its_disk_goes_on(
    disk: HangingDisk, good: LiveJournalFile, tmp_path: Path
) -> None:
    model, port = disk.path / "model.gguf", free_port()
    shutil.copyfile(tiny_model(), model)
    with Exporter(config(with_journal(good), {"name": "bad", "url": f"http://127.0.0.1:{port}"})) as exporter:
        disk.hang()
        with process_of_server(tmp_path, model, port):
            wait_held(exporter.pid)
            with Scraping(exporter, good):
                wait_for("the file to be given up", lambda: GIVEN_UP in exporter.log(), READ_SECONDS + 60)
                assert exporter.scrape().all("llama_kv_bytes_per_token", server="bad") == []
                disk.go_on()
                exporter.wait_value(KV_BYTES_PER_TOKEN_F16, "llama_kv_bytes_per_token", 60, server="bad")


async def demanding(request: Request, writer: object) -> None:
    """Answer whoever has the key."""
    allowed = request.headers.get("authorization") == "Bearer sesame" or request.target == "/health"
    await (by_path(PATHS) if allowed else answering(b"{}", 401))(request, writer)  # type: ignore[arg-type]


def test_a_key_file_that_hangs_holds_up_nobody_and_its_server_is_asked_with_the_key_of_before(
    disk: HangingDisk, good: LiveJournalFile
) -> None:
    key = disk.path / "key"
    key.write_text("sesame\n")
    with background_servers({"keyed": demanding, "free": by_path(PATHS)}) as servers:
        described = [{"name": name, "url": server.url, "may_sleep": False} for name, server in servers.items()]
        described[0]["api_key_file"] = str(key)
        with Exporter(config(with_journal(good), *described)) as exporter:
            for name in servers:
                exporter.wait_value(1234, "llama_slot_tokens", server=name, slot="0")
            disk.hang()
            before = {name: server.asked("/slots") for name, server in servers.items()}
            with Scraping(exporter, good):
                wait_for(
                    "both to be asked on",
                    lambda: all(server.asked("/slots") > before[name] + 10 for name, server in servers.items()),
                    60,
                )
                shown = exporter.scrape()
                for name in servers:
                    assert shown.value("llama_slot_tokens", server=name, slot="0") == 1234
                assert "what was read before stays in use" in exporter.log()
                disk.go_on()
                wait_for("it to be read again", lambda: "can be read again" in exporter.log())
            exporter.stop()
            disk.hang()
            exporter.launch()
            exporter.wait_value(1234, "llama_slot_tokens", server="free", slot="0")
            failed = wait_for(
                "the key to be missed",
                lambda: exporter.scrape().value(
                    "kvexporter_poll_failures_total", server="keyed", endpoint="props", reason="key_file"
                ),
            )
            assert failed >= 1
            disk.go_on()
            exporter.wait_value(1234, "llama_slot_tokens", server="keyed", slot="0")


def test_a_configuration_that_hangs_is_told_holds_up_nothing_and_can_be_read_when_its_disk_goes_on(
    disk: HangingDisk, good: LiveJournalFile
) -> None:
    file = disk.path / "kvexporter.yml"
    file.write_text(yaml.safe_dump(config(with_journal(good))))
    with Exporter(None, "--config.file", str(file)) as exporter:
        exporter.wait_value(1, COUNT, server="good")
        disk.hang()
        with Scraping(exporter, good):
            os.kill(exporter.pid, signal.SIGHUP)
            exporter.wait_value(0, "kvexporter_config_last_reload_successful", CONFIG_SECONDS + 30)
            disk.go_on()

            def reloaded() -> bool:
                os.kill(exporter.pid, signal.SIGHUP)
                time.sleep(0.5)
                return exporter.scrape().value("kvexporter_config_last_reload_successful") == 1

            wait_for("the configuration to be read", reloaded)


def test_a_web_configuration_that_hangs_keeps_nobody_waiting_and_is_told_once(
    disk: HangingDisk, good: LiveJournalFile
) -> None:
    file = disk.path / "web.yml"
    file.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")
    with Exporter(config(with_journal(good)), "--web.config.file", str(file)) as exporter:
        exporter.wait_value(1, COUNT, server="good")
        with Scraping(exporter, good) as scraping:
            disk.hang()
            wait_for("it to be told", lambda: WEB_HANGS in exporter.log())
            scraped = len(scraping.seconds)
            wait_for("scrapes to go on", lambda: len(scraping.seconds) > scraped + 50)
            disk.go_on()
            wait_for("it to be read again", lambda: "web configuration can be read again" in exporter.log())
        assert exporter.log().count(WEB_HANGS) == 1
        file.write_text("http_server_config: {headers: {X-Frame-Options: sameorigin}}\n")
        wait_for("the new one to be in force", lambda: frame_options(exporter) == "sameorigin")


def frame_options(exporter: Exporter) -> str:
    headers = httpx.get(f"{exporter.url}/metrics", timeout=10, trust_env=False).headers
    return str(headers["X-Frame-Options"])


def test_an_alert_receivers_password_that_hangs_is_told_holds_up_nothing_and_the_alert_comes_when_it_can(
    disk: HangingDisk, good: LiveJournalFile
) -> None:
    password = disk.path / "password"
    password.write_text("sesame\n")
    overflow = (RECORDINGS / "b11434" / "unified_overflow" / "server.log").read_text().splitlines()
    with WebhookReceiver() as receiver, LiveJournalFile(good.directory.parent / "other", "other.service") as other:
        auth = {"username": "kvexporter", "password_file": str(password)}
        hook = {"name": "hook", "url": receiver.url, "basic_auth": auth}
        servers = with_journal(good), {**with_journal(other), "url": "http://127.0.0.1:9"}
        with Exporter({**config(*servers), "alerting": {"webhooks": [hook]}}) as exporter:
            disk.hang()
            with Scraping(exporter, good):
                other.write_burst(overflow)
                exporter.wait_value(0, "kvexporter_collector_success", 60, collector="alerting")
                assert receiver.deliveries == []
                disk.go_on()
                delivery = receiver.wait("the alert", lambda found: found, 60)
                assert delivery.headers["authorization"].startswith("Basic ")
                exporter.wait_value(1, "kvexporter_collector_success", 60, collector="alerting")


# ---- when it starts --------------------------------------------------------------------------------------------------


def test_it_starts_while_the_disks_of_logs_and_of_a_model_hang_and_says_what_it_waits_for(
    disks: list[HangingDisk], good: LiveJournalFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, log, model = (one.path / name for one, name in zip(disks, ("journal", "llama.log", "model"), strict=True))
    journal_from_export(b"".join(entry(line(number), number) for number in range(10)), journal)
    log.write_text("".join(f"{line(number)}\n" for number in range(10)))
    shutil.copyfile(tiny_model(), model)
    for each in disks:
        each.hang()
    port, nowhere = free_port(), "http://127.0.0.1:9"
    servers = (
        with_journal(good),
        {"name": "journal", "url": nowhere, "journal": {"directory": str(journal), "matches": [{"_PID": "4242"}]}},
        {"name": "file", "url": nowhere, "log": {"file": str(log)}},
        {"name": "bad", "url": f"http://127.0.0.1:{port}"},
    )
    with (
        process_of_server(tmp_path, model, port),
        notified(tmp_path, monkeypatch) as notify,
        starting(Exporter(config(*servers))) as exporter,
    ):
        exporter.wait_value(1, COUNT, server="good")
        with Scraping(exporter, good):
            message = notify.recv(4096)
            assert message.startswith(b"READY=1\n")
            assert b"not all of it has been read yet" in message
            assert exporter.scrape().value("kvexporter_collector_success", collector="journal") == 0
            for what in (str(journal), str(log)):
                wait_for(f"{what} to be told", lambda what=what: hanging(exporter, what), SILENT_SECONDS + 30)  # type: ignore[misc]
            wait_for("the model's file to be given up", lambda: GIVEN_UP in exporter.log(), READ_SECONDS)
            shown = exporter.scrape()
            assert [shown.all(COUNT, server=name) for name in ("journal", "file")] == [[], []]
            for each in disks:
                each.go_on()
            for name in ("journal", "file"):
                exporter.wait_value(10, COUNT, 60, server=name)
            exporter.wait_value(1, "kvexporter_collector_success", 60, collector="journal")
            exporter.wait_value(KV_BYTES_PER_TOKEN_F16, "llama_kv_bytes_per_token", 60, server="bad")
        exporter.wait_ready()


def hanging(exporter: Exporter, what: str) -> bool:
    """Whether the exporter's own log says so of what has this in its name."""
    return any(what in text and "is the disk hanging?" in text for text in exporter.log().splitlines())


def test_it_starts_while_the_disk_of_a_key_and_of_a_password_hangs(disk: HangingDisk, good: LiveJournalFile) -> None:
    keys = [disk.path / f"key-{number}" for number in range(20)]
    servers = [
        {"name": f"s{number}", "url": f"http://127.0.0.1:{number + 9}", "api_key_file": str(key)}
        for number, key in enumerate(keys)
    ]
    disk.hang()
    with Exporter(config(with_journal(good), *servers)) as exporter:
        exporter.wait_value(1, COUNT, server="good")
        assert "its disk or network does not answer now" in exporter.log()
