"""Whole logs, cut, shuffled, doubled and damaged: counters only grow, memory is bounded, everything can be shown."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from kvexporter.facts import JournalEntry
from kvexporter.intake import LogIntake
from kvexporter.server import Server
from tests.fuzz import corpus
from tests.fuzz.budget import fuzz_settings
from tests.fuzz.invariants import assert_bounded, assert_only_grew, assert_renderable, assert_sane, counts
from tests.fuzz.mutations import mutate, mutated_lines

Step = tuple[bytes, float]
"""A line and the seconds since the one before (negative: the clock was set back)."""

DELAYS = st.sampled_from((0.0, 0.0, 0.001, 0.01, 0.5, 1.9, 2.1, 30.0, 61.0, 1e5, -0.5, -3.0, -1e6))


@st.composite
def damaged_logs(draw: st.DrawFn) -> list[Step]:
    """Pieces of real logs behind each other, with lines dropped, moved, doubled and damaged."""
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 4))):
        lines = corpus.log(draw(st.sampled_from(corpus.folders())))
        start = draw(st.integers(0, len(lines) - 1))
        pace = draw(DELAYS)
        steps += [(line, pace) for line in lines[start : start + draw(st.integers(1, 60))]]
    for _ in range(draw(st.integers(0, 12))):
        if not steps:
            break
        place = draw(st.integers(0, len(steps) - 1))
        line, delay = steps[place]
        match draw(st.sampled_from(("mutate", "mutate", "insert", "delay", "drop", "move", "double", "shuffle"))):
            case "mutate":
                steps[place] = (mutate(draw, line), delay)
            case "insert":
                steps.insert(place, (draw(mutated_lines()), draw(DELAYS)))
            case "delay":
                steps[place] = (line, draw(DELAYS))
            case "drop":
                del steps[place : place + draw(st.integers(1, 10))]
            case "move":
                steps.insert(draw(st.integers(0, len(steps) - 1)), steps.pop(place))
            case "double":
                steps[place:place] = steps[place : place + draw(st.integers(1, 10))]
            case _:
                draw(st.randoms()).shuffle(steps)
    return steps


def _entries(steps: list[Step]) -> Iterator[JournalEntry]:
    at = 1.7e9
    for line, delay in steps:
        at += delay
        yield JournalEntry(at=at, message=line)


@fuzz_settings(2)
@given(damaged_logs())
def test_a_damaged_log_is_survived_and_only_adds(steps: list[Step]) -> None:
    servers: dict[int | None, Server] = {None: Server("s", unit="s.service")}
    intake = LogIntake(lambda port, _: servers.setdefault(port, Server(f"s:{port}")))
    before: dict[int | None, dict[object, float]] = {}
    at = 1.7e9
    for number, entry in enumerate(_entries(steps)):
        at = entry.at
        intake.entry(entry)
        if number % 8 == 0:
            for port, server in servers.items():
                snapshot = server.snapshot(at)
                assert_sane(snapshot)
                now = counts(snapshot)
                assert_only_grew(before.get(port, {}), now)
                before[port] = now
    for port, server in servers.items():
        server.conclude()
        assert_only_grew(before.get(port, {}), counts(server.snapshot(at)))
        assert_bounded(server)
    assert sum(intake.results.values()) == len(steps)
    assert_renderable([server.snapshot(at) for server in servers.values()], at)


@fuzz_settings(1)
@given(damaged_logs(), st.data())
def test_looking_at_the_clock_between_lines_changes_no_count(steps: list[Step], data: st.DataObject) -> None:
    # Ticks are what differs between a log read live and one read later. Where the clock is set back between two lines,
    # it is a matter of the moment of looking which of them came after how long a silence.
    steps = [(line, max(0.0, delay)) for line, delay in steps]
    live, later = Server("s", unit="s.service"), Server("s", unit="s.service")
    at = 1.7e9
    highest = at
    for entry in _entries(steps):
        if entry.at > highest and data.draw(st.booleans()):
            live.tick(data.draw(st.floats(highest, entry.at)))
        highest = max(highest, entry.at)
        for server in (live, later):
            LogIntake(lambda port, _, server=server: server).entry(entry)  # type: ignore[misc]
    live.conclude()
    later.conclude()
    # How long the pool was how full is a matter of time, the rest is not.
    ours = {key: count for key, count in counts(live.snapshot(highest)).items() if key[0] != "fill_seconds"}
    theirs = {key: count for key, count in counts(later.snapshot(highest)).items() if key[0] != "fill_seconds"}
    assert ours == theirs
