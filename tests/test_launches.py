"""What the log tells of a launch reaches the poller, so that no question holds up the first token."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import pytest

from kvexporter.facts import JournalEntry
from kvexporter.fleet import Fleet
from kvexporter.keeper import Keeper
from kvexporter.llama.log import parse_line
from kvexporter.poller import ServerPoller
from kvexporter.reading.batch import Batch
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.targets import Target
from tests.support.asking import run

LAUNCH = b"slot launch_slot_: id  0 | task 7 | processing task"
RELEASE = b"slot      release: id  0 | task 7 | stop processing: n_tokens = 40, truncated = 0"


class Told:
    """In a poller's place: what it is told, in order."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.ago: list[float] = []

    def launched(self, ago: float) -> None:
        self.words.append("launched")
        self.ago.append(ago)

    def wake(self) -> None:
        self.words.append("wake")

    def look(self) -> None:
        self.words.append("look")

    def restarted(self) -> None:
        self.words.append("restarted")


def test_a_launch_is_told_with_its_age_before_the_poller_is_woken_and_again_while_it_is_busy(tmp_path: Path) -> None:
    async def test() -> None:
        fleet = Fleet(lambda: None, Keeper(None))
        selection = JournalSelection(unit="llama-server.service", directory=str(tmp_path))
        fleet.apply([Target("s", unit="llama-server.service", selection=selection, configured=True)])
        told = Told()
        fleet.watched["s"].poller = cast("ServerPoller", told)
        follower = fleet.feeds[0].follower

        def read(line: bytes, ago: float) -> None:
            follower.batch(Batch([JournalEntry(time.time() - ago, reading=parse_line(line))]), more=False)

        read(LAUNCH, 3.0)
        assert told.words == ["launched", "wake"]
        read(LAUNCH.replace(b"id  0 | task 7", b"id  1 | task 8"), 2.0)
        assert told.words == ["launched", "wake", "launched"]
        assert told.ago == [pytest.approx(3.0, abs=1.0), pytest.approx(2.0, abs=1.0)]
        read(RELEASE, 1.0)
        read(RELEASE.replace(b"id  0 | task 7", b"id  1 | task 8"), 0.5)
        assert told.words[3:] == ["look"]
        fleet.watched["s"].poller = None
        await fleet.aclose()

    run(test())
