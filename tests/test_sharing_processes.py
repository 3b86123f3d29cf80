"""Logs whose reading shares a process with that of a log that hangs go on in another one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from kvexporter import reading_links
from kvexporter.config import load_config
from kvexporter.daemon import Daemon
from kvexporter.options import ListenAddress, RunOptions
from kvexporter.reading import link as link_module
from tests.support.asking import run
from tests.support.hanging_disk import HangingDisk, hanging_disk
from tests.support.paths import free_port

DEADLINE = 50.0


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingDisk]:
    monkeypatch.setattr(reading_links, "MOST_READERS", 2)
    monkeypatch.setattr(link_module, "SILENT_SECONDS", 8.0)  # one that is well says a word every 4 s
    with hanging_disk(tmp_path / "hanging") as made:
        yield made


class Logs:
    """A daemon on the test's own loop that reads a log in each of these folders, each for a server of its name."""

    def __init__(self, *folders: Path) -> None:
        for folder in folders:
            folder.mkdir()
            self.write(folder)
        servers = [
            {"name": folder.name, "url": "http://127.0.0.1:9", "log": {"file": str(folder / "log")}}
            for folder in folders
        ]
        config_file = folders[-1].parent / "c.yml"
        config_file.write_text(yaml.safe_dump({"discovery": False, "servers": servers}))
        options = RunOptions(listen_addresses=(ListenAddress("127.0.0.1", free_port()),))
        self.daemon = Daemon(options, load_config(config_file))

    @staticmethod
    def write(folder: Path) -> None:
        with (folder / "log").open("a") as log:
            log.write("slot release: id  0 | task 1 | stop processing: n_tokens = 7, truncated = 0\n")

    async def counted(self, folder: Path, requests: int) -> None:
        """Wait until so many were, and make sure that no process more than allowed is there."""
        async with asyncio.timeout(DEADLINE):
            while True:
                self.bounded()
                watched = self.daemon._fleet.watched.get(folder.name)
                sizes = watched.model.snapshot(0.0).request_tokens if watched is not None else None
                if sizes is not None and sizes.count >= requests:
                    assert sizes.count == requests
                    return
                await asyncio.sleep(0.05)

    def bounded(self) -> None:
        assert len(list(self.daemon._fleet._journals._links)) <= reading_links.MOST_READERS


@asynccontextmanager
async def running(logs: Logs, *folders: Path) -> AsyncIterator[None]:
    task = asyncio.create_task(logs.daemon.run())
    try:
        for folder in folders:
            await logs.counted(folder, 1)
        yield
    finally:
        logs.daemon._stop.set()
        assert await asyncio.wait_for(task, DEADLINE) == 0


def test_what_shares_a_process_with_a_log_that_hangs_goes_on_in_another(
    disk: HangingDisk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = disk.path / "bad", [tmp_path / name for name in ("one", "two", "three", "four")]
    logs = Logs(bad, *good)

    async def test() -> None:
        async with running(logs, bad, *good):
            disk.hang()
            for folder in good:
                logs.write(folder)
            for folder in good:
                await logs.counted(folder, 2)
            disk.go_on()
            logs.write(bad)
            await logs.counted(bad, 2)
            for folder in good:
                logs.write(folder)
                await logs.counted(folder, 3)

    with caplog.at_level(logging.WARNING):
        run(test())
    assert f"{bad} hangs: the other logs that its process has read go on in others" in caplog.text


@pytest.mark.parametrize("unkillable", [False, True])
def test_logs_that_hang_in_every_process_share_one_so_that_the_others_go_on(
    disk: HangingDisk, tmp_path: Path, unkillable: bool
) -> None:
    bad, good = [disk.path / "bad", disk.path / "worse"], [tmp_path / name for name in ("one", "two")]
    logs = Logs(*bad, *good)

    async def test() -> None:
        async with running(logs, *bad, *good):
            disk.hang(unkillable=unkillable)
            for folder in good:
                logs.write(folder)
            for folder in good:
                await logs.counted(folder, 2)
            disk.go_on()
            for folder in bad:
                logs.write(folder)
                await logs.counted(folder, 2)

    run(test())
