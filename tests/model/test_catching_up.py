"""While a log is still being read up to now, time passing outside ends nothing that is going on in it."""

from __future__ import annotations

import pytest

from kvexporter.llama.log import parse_line
from kvexporter.server import Server
from tests.support.paths import RECORDINGS

LINES = (RECORDINGS / "b11434" / "unified_overflow" / "server.log").read_bytes().splitlines()
DAY = 86_400.0
NOW = 1_800_000_000.0


def read(server: Server, lines: list[bytes], at: float) -> None:
    for line in lines:
        if (parsed := parse_line(line)) is not None:
            server.line(parsed, at)


@pytest.mark.parametrize("age", [0.0, 30.0, 70.0, DAY])
@pytest.mark.parametrize("stop", range(1, len(LINES)))
def test_the_clock_moves_on_between_two_lines_of_a_backlog(age: float, stop: int) -> None:
    server = Server("s")
    written = NOW - age
    read(server, LINES[:stop], written)
    for second in range(3):
        server.tick(NOW + second, quiet=NOW + second)  # nothing of the journal is known to have been read
        server.tick(NOW + second, quiet=max(age, 3.0) + second)  # it was read up to these lines
    read(server, LINES[stop:], written)
    server.tick(NOW + 20, quiet=3.0)

    counters = server.snapshot(NOW + 20).counters
    assert counters.incidents == {"pool": 1, "slot": 0}
    assert counters.requests_failed == {"pool": 4, "slot": 0}
    assert counters.recoveries == 0
