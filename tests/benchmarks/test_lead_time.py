"""The lead-time benchmark's simulated server speaks as a real one, and its verdicts are those of a stopwatch."""

from __future__ import annotations

import pytest

from benchmarks.lead_time_judge import judge, through_prometheus
from benchmarks.lead_time_runs import HEALTHY_PEAK, KINDS, Run, simulated_runs
from benchmarks.lead_time_server import Ask, Client, Dialect, Machine, Recording, SimulatedServer
from kvexporter.intake import LogIntake, take_answer
from kvexporter.rules.thresholds import PoolCondition
from kvexporter.server import Server
from kvexporter.snapshot import PoolSnapshot, ServerSnapshot


def request(start: float, prompt: int, answer: int) -> Client:
    yield start
    yield Ask(prompt, answer)


def run(dialect: Dialect, *clients: Client) -> Recording:
    return SimulatedServer(Machine(32_768, 4, 500.0, 20.0, dialect), 1).run(list(clients), 3600)


def told(recording: Recording) -> ServerSnapshot:
    server = Server("simulated", poll_interval=1.0)
    intake = LogIntake(lambda port, pid: server)
    for fact in recording.facts:
        if fact.asked is None:
            intake.line(fact.body, fact.at)
        else:
            take_answer(server, "slots", fact.body, fact.at, fact.asked)
    server.conclude()
    return server.snapshot(recording.ended)


@pytest.mark.parametrize("dialect", ["b11434", "b8635"])
def test_its_overflow_is_one_incident_of_the_requests_that_ran(dialect: Dialect) -> None:
    recording = run(dialect, request(0, 20_000, 500), request(1, 14_000, 500))
    (incident,) = told(recording).incidents
    assert incident.requests_failed == 2
    assert incident.capacity == 32_768
    assert incident.started == recording.failed_at


@pytest.mark.parametrize("dialect", ["b11434", "b8635"])
def test_requests_that_fit_are_answered_and_have_the_size_that_they_asked_for(dialect: Dialect) -> None:
    """The last token of an answer is never stored: 20,000 + 499 and 9,000 + 299."""
    recording = run(dialect, request(0, 20_000, 500), request(1, 9_000, 300))
    shown = told(recording)
    assert recording.failed_at is None
    assert shown.request_tokens is not None
    assert (shown.request_tokens.count, shown.request_tokens.sum) == (2, 20_499 + 9_299)
    assert shown.geometry.overcommit_ratio == 4.0
    assert shown.pool is not None
    assert shown.pool.processing_tokens == 0


def test_the_build_up_begins_with_the_request_that_makes_it_too_much() -> None:
    recording = run("b11434", request(0, 20_000, 5_000), request(100, 9_000, 5_000))
    assert recording.began == pytest.approx(100, abs=0.5)
    assert recording.failed_at is not None


def test_each_kind_overflows_or_stays_within_its_bounds() -> None:
    runs = list(simulated_runs(5, 5, seed=5))
    assert [each.kind for each in runs] == [*KINDS, *KINDS]
    for each in runs:
        assert each.overflows == (each.recording.failed_at is not None)
        if not each.overflows:
            assert HEALTHY_PEAK[0] - 0.05 <= each.recording.peak <= HEALTHY_PEAK[1]


def full_from(second: float) -> list[tuple[float, PoolSnapshot | None]]:
    """A pool watched for 100 s that is full from a second on."""
    return [
        (float(at), PoolSnapshot(1, 0, 1.0 if at >= second else 0.5, None, 1.0 if at >= second else 0.5))
        for at in range(1, 100)
    ]


FULL = (PoolCondition(fill_ratio=0.9),)


def test_the_lead_is_from_the_warning_to_the_failure() -> None:
    what = Run("four equal", True, Recording(began=10.0, failed_at=100.0, ended=100.0))
    verdict = judge(what, full_from(60), FULL, ())
    assert (verdict.lead, verdict.build_up, verdict.early) == (40, 90, True)
    assert not judge(what, full_from(80), FULL, ()).early
    assert judge(what, full_from(101), FULL, ()).lead is None


@pytest.mark.parametrize("seed", range(8))
def test_prometheus_sees_it_at_most_a_scrape_and_an_evaluation_later(seed: int) -> None:
    what = Run("four equal", True, Recording(began=10.0, failed_at=100.0, ended=100.0))
    verdict = judge(what, through_prometheus(full_from(40), seed), FULL, ())
    assert verdict.warned_at is not None
    assert 40 <= verdict.warned_at <= 40 + 15 + 15 + 1


def test_a_warning_that_goes_on_within_the_rules_time_of_keeping_on_is_one() -> None:
    what = Run("four equal", False, Recording(ended=2000.0))
    full, half = PoolSnapshot(1, 0, 1.0, None, 1.0), PoolSnapshot(1, 0, 0.5, None, 0.5)
    seen: list[tuple[float, PoolSnapshot | None]] = [
        (float(at), full if at in (100, 300, 1500) else half) for at in range(2000)
    ]
    assert judge(what, seen, FULL, ()).warnings == 2
