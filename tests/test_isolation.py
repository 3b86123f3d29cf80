"""What hangs stops nothing else: the daemon's loop turns, scrapes answer, and the watchdog knows the truth."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from kvexporter import daemon as daemon_module
from kvexporter import follower as follower_module
from kvexporter.config import Config, load_config
from kvexporter.daemon import Daemon
from kvexporter.facts import FoundProcess, GpuReport, GpuSample
from kvexporter.fleet import Fleet
from kvexporter.gpu_worker import GpuWorker
from kvexporter.memory_at_ready import Memory, SettledStart
from kvexporter.options import ListenAddress, RunOptions
from kvexporter.sources.discovery import Discovery
from kvexporter.sources.journal_health import JournalHealth
from kvexporter.sources.proc_stat import read_proc_stat, start_time
from tests.support.asking import run
from tests.support.dead_disk import unanswering
from tests.support.http_servers import until
from tests.support.journal_files import LiveJournalFile
from tests.support.paths import free_port
from tests.support.scrape import Scrape

Test = Callable[["Running"], Awaitable[None]]


class Running:
    """A daemon that runs on the test's own loop."""

    def __init__(self, daemon: Daemon, port: int) -> None:
        self.daemon = daemon
        self._url = f"http://127.0.0.1:{port}/metrics"

    async def scrape(self) -> Scrape:
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            return Scrape((await client.get(self._url)).text)

    async def wait_value(self, expected: float, name: str, **labels: str) -> Scrape:
        async with asyncio.timeout(30):
            while True:
                try:
                    now = await self.scrape()
                    if now.value(name, **labels) == expected:
                        return now
                except httpx.TransportError:
                    pass  # not listening yet
                await asyncio.sleep(0.02)


def with_daemon(test: Test, config: Config | None = None) -> None:
    async def go() -> None:
        port = free_port()
        daemon = Daemon(RunOptions(listen_addresses=(ListenAddress("127.0.0.1", port),)), config or Config())
        task = asyncio.create_task(daemon.run())
        try:
            await test(Running(daemon, port))
        finally:
            daemon._stop.set()
            assert await asyncio.wait_for(task, 30) == 0

    run(go())


def test_the_watchdog_is_fed_while_the_loop_turns_and_not_while_it_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))
        notify.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "300000")
        monkeypatch.delenv("WATCHDOG_PID", raising=False)

        def messages() -> list[bytes]:
            found = []
            while True:
                try:
                    found.append(notify.recv(4096))
                except BlockingIOError:
                    return found

        async def test(running: Running) -> None:
            fed: list[bytes] = []

            def fed_thrice() -> bool:
                fed.extend(messages())
                return fed.count(b"WATCHDOG=1") >= 3

            await until(fed_thrice)
            time.sleep(0.6)  # noqa: ASYNC251 - the loop is stuck for two whole intervals
            messages()
            time.sleep(0.3)  # noqa: ASYNC251
            assert messages() == []
            fed.clear()
            await until(fed_thrice)

        with_daemon(test)


def test_systemd_is_told_that_it_answers_though_a_journal_is_never_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else a dead disk would hold up the boot, and the start would be given up after 90 s, again and again.
    monkeypatch.setattr(daemon_module, "START_SECONDS", 1.0)
    monkeypatch.setattr(Fleet, "caught_up", False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))
        notify.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

        async def test(running: Running) -> None:
            async with asyncio.timeout(30):
                message = await asyncio.get_running_loop().sock_recv(notify, 4096)
                assert message.startswith(b"READY=1\n")
                assert b"not all of it has been read yet" in message
            assert not running.daemon._ready

        with_daemon(test)


def test_looking_for_processes_hangs_and_all_else_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def hang(self: object, *, thorough: bool) -> list[FoundProcess]:
        release.wait(60)
        return []

    monkeypatch.setattr(Discovery, "find", hang)
    monkeypatch.setattr(daemon_module, "DISCOVERY_DEADLINE", 0.1)
    monkeypatch.setattr(daemon_module, "DISCOVERY_SECONDS", 0.1)
    file = tmp_path / "c.yml"
    file.write_text("servers:\n- {name: far, url: 'http://127.0.0.1:9'}\n")

    async def test(running: Running) -> None:
        now = await running.wait_value(0, "kvexporter_collector_success", collector="discovery")
        # What is configured is watched all the same.
        assert now.value("llama_up", server="far") in (None, 0.0)
        await running.wait_value(0, "llama_up", server="far")
        release.set()
        await running.wait_value(1, "kvexporter_collector_success", collector="discovery")

    with_daemon(test, load_config(file))


def test_looking_at_a_journals_files_hangs_and_all_else_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def hang(selection: object) -> JournalHealth:
        release.wait(60)
        return JournalHealth()

    monkeypatch.setattr(follower_module, "log_health", hang)
    monkeypatch.setattr(follower_module, "HEALTH_SECONDS", 0.1)
    monkeypatch.setattr(daemon_module, "JOURNAL_CHECK_SECONDS", 0.1)
    file = tmp_path / "c.yml"
    file.write_text(f"servers:\n- {{unit: llama-server.service, journal: {{directory: {tmp_path / 'journal'}}}}}\n")

    async def test(running: Running) -> None:
        await running.wait_value(0, "kvexporter_collector_success", collector="journal")
        journal.write("slot release: id  0 | task 1 | stop processing: n_tokens = 7, truncated = 1")
        await running.wait_value(1, "llama_answers_truncated_total", server="llama-server")
        release.set()
        await running.wait_value(1, "kvexporter_collector_success", collector="journal")

    with LiveJournalFile(tmp_path / "journal") as journal:
        journal.write("srv  update_slots: all slots are idle")
        with_daemon(test, load_config(file))


def test_the_configuration_does_not_answer_and_all_else_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "CONFIG_SECONDS", 0.2)
    file = tmp_path / "c.yml"
    file.write_text("servers:\n- {name: far, url: 'http://127.0.0.1:9'}\n")

    async def test(running: Running) -> None:
        await running.wait_value(0, "llama_up", server="far")
        running.daemon._options = replace(running.daemon._options, config_file=file)
        with unanswering(file):
            error = await running.daemon.reload()
            assert error == "reading the configuration: no result within 0.2 s"
            now = await running.wait_value(0, "kvexporter_config_last_reload_successful")
            assert now.value("llama_up", server="far") == 0.0
        async with asyncio.timeout(30):
            while await running.daemon.reload() is not None:  # noqa: ASYNC110 - the disk tells nobody
                await asyncio.sleep(0.02)
        await running.wait_value(1, "kvexporter_config_last_reload_successful")

    with_daemon(test, load_config(file))


def test_a_configuration_that_was_read_while_processes_could_not_be_looked_for_is_applied_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = False

    def find(self: object, *, thorough: bool) -> list[FoundProcess]:
        if hangs:
            raise PermissionError("no /proc")
        return []

    monkeypatch.setattr(Discovery, "find", find)
    file = tmp_path / "c.yml"
    file.write_text("servers:\n- {name: before, url: 'http://127.0.0.1:9'}\n")

    async def test(running: Running) -> None:
        nonlocal hangs
        daemon = running.daemon
        await running.wait_value(0, "llama_up", server="before")
        daemon._options = replace(daemon._options, config_file=file)
        file.write_text("servers:\n- {name: after, url: 'http://127.0.0.1:9'}\n")
        hangs = True
        assert await daemon.reload() is None
        hangs = False
        await daemon._discover(thorough=False)
        assert list(daemon._fleet.watched) == ["after"]

    with_daemon(test, load_config(file))


def test_a_servers_end_is_told_at_once_between_the_looks_at_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDLE_SECONDS", "PROCESS_SECONDS", "DISCOVERY_SECONDS"):
        monkeypatch.setattr(daemon_module, name, 1000.0)
    sleeper = subprocess.Popen(["sleep", "600"])
    stat = read_proc_stat(Path("/proc") / str(sleeper.pid))
    assert stat is not None
    process = FoundProcess(sleeper.pid, start_time("/proc", stat.start_ticks), ("llama-server",))
    monkeypatch.setattr(Discovery, "find", lambda self, *, thorough: [process] if sleeper.poll() is None else [])

    async def test(running: Running) -> None:
        seen = await running.wait_value(1, "kvexporter_collector_success", collector="process")
        assert seen.value("llama_process_start_time_seconds") is not None
        sleeper.kill()
        await running.wait_value(0, "llama_up")

    try:
        with_daemon(test)
    finally:
        sleeper.kill()
        sleeper.wait()


def test_where_no_gpu_is_one_is_looked_for_when_a_server_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[tuple[int, ...]] = []
    found: list[FoundProcess] = []

    async def read(self: object, pids: Iterable[int]) -> GpuReport:
        looks.append(tuple(pids))
        return GpuReport(reason="no_gpu", detail="there is no GPU here")

    monkeypatch.setattr(GpuWorker, "read", read)
    monkeypatch.setattr(Discovery, "find", lambda self, *, thorough: list(found))

    async def test(running: Running) -> None:
        await until(lambda: looks == [()])
        stat = read_proc_stat(Path("/proc/self"))
        assert stat is not None
        found.append(FoundProcess(os.getpid(), start_time("/proc", stat.start_ticks), ("llama-server",)))
        await running.daemon._discover()
        await until(lambda: looks[1:] == [(os.getpid(),)])

    with_daemon(test)


def test_gpus_are_looked_at_again_soon_when_a_server_has_come_until_what_it_takes_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the figure for a started server would be of the time before it had loaded, or be missing."""
    monkeypatch.setattr(daemon_module, "QUIET_GPU_SECONDS", 1000.0)
    monkeypatch.setattr(daemon_module, "GPU_SECONDS", 0.1)
    found: list[FoundProcess] = []
    looks: list[tuple[int, ...]] = []

    async def read(self: object, pids: Iterable[int]) -> GpuReport:
        looks.append(tuple(pids))
        return GpuReport(gpus=(GpuSample("0", "GPU-1", "a card", "nvidia"),))

    monkeypatch.setattr(GpuWorker, "read", read)
    monkeypatch.setattr(Discovery, "find", lambda self, *, thorough: list(found))

    async def test(running: Running) -> None:
        daemon = running.daemon
        await until(lambda: bool(looks))
        assert looks == [()]
        stat = read_proc_stat(Path("/proc/self"))
        assert stat is not None
        found.append(FoundProcess(os.getpid(), start_time("/proc", stat.start_ticks), ("llama-server",)))
        await daemon._discover()
        await until(lambda: len(looks) > 3)
        assert set(looks[1:]) == {(os.getpid(),)}
        (watched,) = daemon._fleet.watched.values()
        memory = Memory(1)
        watched.model.memory_at_ready.start = SettledStart(os.getpid(), 0.0, 0.0, late=False, memory=memory)
        await until(lambda: daemon._settling._waiting is not None)
        before = len(looks)
        await asyncio.sleep(0.5)
        assert len(looks) == before

    with_daemon(test)
