"""A server whose log is no journal's: what is read for it, and which process is its own."""

from __future__ import annotations

from pathlib import Path

from kvexporter.config import Config
from kvexporter.config_log import LogConfig
from kvexporter.config_server import ServerConfig
from kvexporter.facts import FoundProcess
from kvexporter.sources.log_selection import LogFileSelection, StdinSelection
from kvexporter.targets import gone_targets, plan_targets

LOG = Path("/var/log/llama/a.log")


def process(pid: int, *arguments: str, unit: str | None = None, port: int = 8080) -> FoundProcess:
    return FoundProcess(pid, 1.0, ("llama-server", *arguments), unit=unit, listen_ports=(port,))


def test_a_log_takes_the_journals_place_and_the_unit_still_finds_the_process() -> None:
    server = ServerConfig(name="a", unit="a.service", log=LogConfig(file=LOG))
    (target,) = plan_targets(Config(servers=(server,)), [process(7, unit="b.service"), process(8, unit="a.service")])
    assert target.selection == LogFileSelection(str(LOG))
    assert target.process is not None
    assert target.process.pid == 8


def test_the_process_that_writes_the_file_is_the_servers() -> None:
    server = ServerConfig(name="a", log=LogConfig(file=LOG))
    found = [process(7, "--log-file", "/other.log"), process(8, "--log-file", str(LOG), port=8081)]
    (target,) = plan_targets(Config(servers=(server,)), found)
    assert target.process is not None
    assert target.process.pid == 8
    assert target.api is not None
    assert target.api.base_url == "http://127.0.0.1:8081"
    (target,) = plan_targets(Config(servers=(server,)), found[:1])
    assert (target.process, target.api) == (None, None)


def test_standard_input_is_a_log_too() -> None:
    server = ServerConfig(name="a", url="http://127.0.0.1:8080", log=LogConfig(stdin=True))
    (target,) = plan_targets(Config(servers=(server,)), [process(7)])
    assert target.selection == StdinSelection()
    assert target.process is not None


def test_a_stored_log_that_is_no_units_is_no_server_that_is_gone() -> None:
    assert gone_targets(Config(), [(LogFileSelection(str(LOG)), ["a"]), (StdinSelection(), ["b"])]) == []
