"""A router's models: named for what they are, counted on over their reloads, and gone while they are not loaded."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kvexporter.facts import FoundProcess
from kvexporter.fleet import Fleet
from kvexporter.intake import LogIntake
from kvexporter.keeper import Keeper
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.process import ProcessReader
from kvexporter.targets import Target
from tests.support.asking import run

START = "0.00.116.135 I srv          load: spawning server instance with name={} on port {}"
RELEASED = "[{}] 0.00.106.345 I slot      release: id  3 | task 0 | stop processing: n_tokens = 6, truncated = 0"


def fleet_of(directory: Path, *, seen: bool = True) -> tuple[Fleet, Target, LogIntake]:
    """A fleet with a router, whose process is this one if it is `seen`."""
    selection = JournalSelection(unit="llama.service", directory=str(directory))
    process = FoundProcess(os.getpid(), started_at(os.getpid()), ("llama-server",)) if seen else None
    router = Target("llama", unit="llama.service", selection=selection, process=process)
    fleet = Fleet(lambda: None, Keeper(None))
    fleet.apply([router])
    fleet.feeds[0].follower.start_after(None, 0)
    fleet.feeds[0].follower.caught_up = True
    return fleet, router, fleet.feeds[0].intake


def started_at(pid: int) -> float:
    sample = ProcessReader().read(pid)
    assert sample is not None
    return sample.start_time


def child(router: Target, name: str, port: int) -> Target:
    return replace(router, name=f"llama:{name}", selection=None, child_of="llama", port=port)


def shown(fleet: Fleet) -> dict[str, float]:
    """Name → requests counted."""
    return {
        server.name: server.request_tokens.count if server.request_tokens is not None else 0.0
        for server in fleet.snapshots(2.0)
    }


def say(intake: LogIntake, *lines: str) -> None:
    for line in lines:
        intake.line(line.encode(), 1.0)


def test_a_model_is_one_server_whatever_ports_its_processes_get(tmp_path: Path) -> None:
    async def test() -> None:
        fleet, router, intake = fleet_of(tmp_path)
        say(intake, START.format("tiny", 40881), RELEASED.format(40881))
        fleet.apply([router, child(router, "tiny", 40881)])
        assert shown(fleet) == {"llama": 0, "llama:tiny": 1}

        fleet.apply([router])
        assert shown(fleet) == {"llama": 0}, "not loaded is not down"

        say(intake, START.format("other", 40881), START.format("tiny", 43073))
        say(intake, RELEASED.format(43073), RELEASED.format(43073), RELEASED.format(40881))
        fleet.apply([router, child(router, "tiny", 43073), child(router, "other", 40881)])
        assert shown(fleet) == {"llama": 0, "llama:tiny": 3, "llama:other": 1}
        await fleet.aclose()

    run(test())


def test_models_of_old_lines_without_a_process_are_not_shown(tmp_path: Path) -> None:
    async def test() -> None:
        fleet, _, intake = fleet_of(tmp_path)
        say(intake, START.format("tiny", 40881), RELEASED.format(40881), RELEASED.format(50000))
        assert set(shown(fleet)) == {"llama"}
        await fleet.aclose()

    run(test())


def test_where_no_process_is_seen_the_lines_alone_show_the_models(tmp_path: Path) -> None:
    async def test() -> None:
        fleet, _, intake = fleet_of(tmp_path, seen=False)
        say(intake, START.format("tiny", 40881), RELEASED.format(40881), RELEASED.format(50000))
        assert shown(fleet) == {"llama": 0, "llama:tiny": 1, "llama:50000": 1}
        await fleet.aclose()

    run(test())


@pytest.mark.parametrize("told", ["another spelling", None])
def test_lines_read_before_the_process_was_found_count_for_it(tmp_path: Path, told: str | None) -> None:
    async def test() -> None:
        fleet, router, intake = fleet_of(tmp_path)
        if told is not None:
            say(intake, START.format(told, 40881))
        say(intake, RELEASED.format(40881))
        fleet.apply([router, child(router, "tiny", 40881)])
        say(intake, RELEASED.format(40881))
        assert shown(fleet) == {"llama": 0, "llama:tiny": 2}
        await fleet.aclose()

    run(test())
