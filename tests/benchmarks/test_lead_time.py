"""The lead-time benchmark's simulated server speaks as a real one, and its verdicts are those of a stopwatch."""

from __future__ import annotations

import json

import pytest

from benchmarks.lead_time_client import Ask, Client
from benchmarks.lead_time_judge import judge, through_prometheus, watched
from benchmarks.lead_time_machine import Dialect, Machine
from benchmarks.lead_time_recording import Recording
from benchmarks.lead_time_runs import HEALTHY_PEAK, KINDS, Run, simulated_runs
from benchmarks.lead_time_server import SimulatedServer
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


def chosen(recording: Recording) -> list[str]:
    """Why each request got its slot, in the log's words."""
    lines = [fact.body.decode() for fact in recording.facts if fact.asked is None]
    return [line.partition("selected slot by ")[2] for line in lines if "selected slot by " in line]


def talk(start: float, *turns: tuple[int, int, int]) -> Client:
    """Turns of one conversation, ten seconds apart: (prompt, answer, what of the prompt was said before)."""
    yield start
    for prompt, answer, before in turns:
        yield Ask(prompt, answer, cached=before)
        yield 10.0


@pytest.mark.parametrize(("dialect", "name"), [("b11434", "f_sim_best"), ("b8635", "sim_best")])
def test_the_next_turn_gets_the_slot_that_holds_the_last_one(dialect: Dialect, name: str) -> None:
    """1,000 + 101 tokens less the last one are held; 1,000 of them are half of the prompt."""
    assert chosen(run(dialect, talk(0, (1000, 101, 0), (2000, 50, 1000)))) == [
        "LRU, t_last = -1",
        f"LCP similarity, {name} = 0.500 (> 0.100 thold), f_keep = 0.909",
    ]


def test_a_turn_with_a_tenth_or_less_in_common_gets_the_slot_unused_for_longest() -> None:
    first, second = chosen(run("b11434", talk(0, (1000, 100, 0), (2000, 50, 200))))
    assert first == "LRU, t_last = -1"
    assert second == "LRU, t_last = -1"  # one that was never used


def test_newer_builds_drop_idle_caches_at_a_launch_and_fetch_them_back_from_the_hosts_memory() -> None:
    """The other request comes between the two turns. On b8635 the cache stays where it is."""
    clients = talk(0, (1000, 100, 0), (2000, 50, 1000)), request(8, 500, 20)
    assert [line[:3] for line in chosen(run("b11434", *clients))] == ["LRU", "LRU", "LRU"]
    reused = [
        slot["n_prompt_tokens_cache"]
        for fact in run("b11434", talk(0, (1000, 100, 0), (2000, 50, 1000)), request(8, 500, 20)).facts
        if fact.asked is not None
        for slot in json.loads(fact.body)
        if slot["is_processing"]
    ]
    assert 1000 in reused
    clients = talk(0, (1000, 100, 0), (2000, 50, 1000)), request(8, 500, 20)
    assert [line[:3] for line in chosen(run("b8635", *clients))] == ["LRU", "LRU", "LCP"]


def test_a_prompt_that_waits_shows_what_its_slot_held_and_nothing_reused() -> None:
    """As b11434 does: of slot 0 while slot 2 read, `n_prompt_tokens` 3519 and `n_prompt_tokens_cache` 0."""
    clients = (
        talk(0, (1000, 100, 0), (2000, 50, 1000)),
        *(request(start, 8_000, 20) for start in (8.0, 8.5, 9.0)),
    )
    recording = run("b11434", *clients)
    shown = [
        slot
        for fact in recording.facts
        if fact.asked is not None
        for slot in json.loads(fact.body)
        if slot["is_processing"] and slot["n_prompt_tokens"] == 1099
    ]
    assert shown
    assert {slot["n_prompt_tokens_cache"] for slot in shown if slot["n_prompt_tokens_processed"] == 0} == {0}


def test_older_builds_purge_idle_caches_for_room_before_a_request_fails() -> None:
    recording = run("b8635", request(0, 20_000, 20), request(60, 20_000, 20))
    assert recording.failed_at is None
    counted = told(recording).counters
    assert (counted.purges, counted.purged_tokens, counted.incidents.get("pool", 0)) == (1, 20_019, 0)


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


def needed(ratio: float) -> list[tuple[float, PoolSnapshot | None]]:
    """A half-full pool whose running requests are known to need so much of it."""
    return [(float(at), PoolSnapshot(1, 0, 0.5, None, 0.5, committed_ratio=ratio)) for at in range(1, 100)]


def test_a_run_is_like_a_healthy_one_as_long_as_nothing_known_is_more_than_healthy_runs_need() -> None:
    what = Run("four equal", True, Recording(began=10.0, failed_at=100.0, ended=100.0))
    assert judge(what, needed(0.95), (), ()).like_healthy
    assert not judge(what, needed(0.96), (), ()).like_healthy
    assert not judge(what, full_from(60), (), ()).like_healthy, "the pool was full with a third of the build-up left"
    assert judge(what, full_from(71), (), ()).like_healthy


def test_agents_are_not_once_a_prompt_is_larger_than_those_send_that_were_told_the_window() -> None:
    for beyond, like in ((70.0, False), (70.5, True), (None, True)):
        what = Run("slow agents", True, Recording([], 10.0, 100.0, 100.0, 1.0, beyond))
        assert judge(what, needed(0.9), (), ()).like_healthy is like


def test_what_older_builds_answer_too_late_is_a_timeout_first() -> None:
    """Batches of 2048 take 20 s at 100 tokens a second; the daemon gives up waiting after 5 s and shows what it had."""
    machine = Machine(32_768, 4, 100.0, 20.0, "b8635")
    recording = SimulatedServer(machine, 1).run([request(0, 12_000, 20)], 100)
    seen = watched(Run("four equal", False, recording))
    shown = [pool for at, pool in seen if 5 < at < 95]
    assert {pool.committed_tokens if pool is not None else None for pool in shown} == {12_000}


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
