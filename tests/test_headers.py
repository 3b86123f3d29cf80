"""Which servers' model files are read when, and that a disk that hangs holds up nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kvexporter.facts import FoundProcess, GgufHeader
from kvexporter.headers import MOST_HANGING, HeaderReading
from kvexporter.llama.launch import parse_launch
from kvexporter.server import Server
from kvexporter.sources.model_file import ModelFiles
from kvexporter.targets import Target
from tests.support.asking import run
from tests.support.gguf_bytes import header, llama, u32


@dataclass
class Watched:
    target: Target
    model: Server


class Counted(ModelFiles):
    """Files that may hang until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.read_names: list[tuple[str, ...]] = []
        self.hanging: set[str] = set()
        self.go_on = threading.Event()

    def read(self, names: Iterable[str], pid: int | None, *, in_container: bool) -> GgufHeader:
        names = tuple(names)
        self.read_names.append(names)
        if self.hanging.intersection(names):
            self.go_on.wait(60)
        return super().read(names, pid, in_container=in_container)


def watched(name: str, model: Path | str, pid: int = 7, *arguments: str) -> Watched:
    process = FoundProcess(pid, 1000.0, ("llama-server", "-m", str(model), *arguments))
    options = parse_launch(process.arguments[1:], {})
    server = Server(name)
    server.launched_with(options)
    return Watched(Target(name, process=process, options=options), server)


def each(server: Watched) -> float | None:
    return server.model.snapshot(1001.0).kv_bytes_per_token


def counts(files: Counted) -> dict[str, int]:
    return dict(Counter(name for names in files.read_names for name in names))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(llama()))
    return path


def test_a_servers_file_is_read_once_for_each_of_its_starts(model: Path) -> None:
    files = Counted()
    reading = HeaderReading(files)
    server = watched("a", model)

    async def steps() -> None:
        for _ in range(3):
            await reading.step([server])
        assert each(server) == 160 * 1024
        assert len(files.read_names) == 1
        assert server.target.process is not None
        server.target = replace(server.target, process=replace(server.target.process, pid=8, start_time=2000.0))
        model.write_bytes(header(llama(**{"llama.block_count": u32(10)})))  # noqa: ASYNC240
        await reading.step([server])
        assert each(server) == 40 * 1024

    run(steps())


def test_the_file_is_read_again_for_a_server_that_is_watched_anew_while_its_process_runs_on(model: Path) -> None:
    reading = HeaderReading(Counted())

    async def steps() -> None:
        await reading.step([watched("a", model)])
        again = watched("a", model)
        await reading.step([again])
        assert each(again) == 160 * 1024

    run(steps())


def test_a_new_start_whose_file_tells_nothing_has_no_numbers_of_the_old_one(model: Path) -> None:
    reading = HeaderReading()
    server = watched("a", model)

    async def steps() -> None:
        await reading.step([server])
        assert each(server) is not None
        assert server.target.process is not None
        server.target = replace(server.target, process=replace(server.target.process, pid=8))
        model.write_bytes(b"no model")  # noqa: ASYNC240
        await reading.step([server])
        assert each(server) is None

    run(steps())


def test_the_name_that_the_log_tells_is_tried_first(model: Path) -> None:
    from tests.support.model import LogStory

    server = watched("a", "ggml-org/m:Q8_0")
    reading = HeaderReading()

    async def steps() -> None:
        await reading.step([server])
        assert each(server) is None
        LogStory(server.model).lines(f"0.00.002.000 I srv    load_model: loading model '{model}'")
        await reading.step([server])
        assert each(server) == 160 * 1024

    run(steps())


def test_a_server_without_a_process_or_a_name_is_left_alone() -> None:
    files = Counted()
    remote = Watched(Target("far"), Server("far"))
    nameless = Watched(Target("router", process=FoundProcess(7, 1.0, ("llama-server",))), Server("router"))

    run(HeaderReading(files).step([remote, nameless]))

    assert files.read_names == []


def test_a_disk_that_hangs_costs_its_deadline_once_and_other_files_nothing(tmp_path: Path, model: Path) -> None:
    files = Counted()
    dead = [str(tmp_path / f"dead{number}.gguf") for number in range(MOST_HANGING + 2)]
    files.hanging = set(dead)
    reading = HeaderReading(files, seconds=1.0)
    good = watched("good", model)
    servers = [watched(f"s{number}", name, 10 + number) for number, name in enumerate(dead)]

    async def steps() -> None:
        await reading.step([servers[0], good, servers[1]])
        assert each(good) == 160 * 1024
        await reading.step([*servers, good])
        assert len(files.read_names) == MOST_HANGING + 1  # no more threads are lost to dead disks
        files.go_on.set()
        # Those that were left out get their turn, and those that hung another one.
        expected = {str(model): 1} | dict.fromkeys(dead[:MOST_HANGING], 2) | dict.fromkeys(dead[MOST_HANGING:], 1)
        deadline = time.monotonic() + 20
        while counts(files) != expected and time.monotonic() < deadline:
            await reading.step([*servers, good])
            await asyncio.sleep(0.01)
        assert counts(files) == expected

    run(steps())
