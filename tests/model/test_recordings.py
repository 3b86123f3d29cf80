"""Every recording of a real server shows what its own lines, polls and clients say it must (`expected.json`)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvexporter.replay import run_replay
from kvexporter.snapshot import ServerSnapshot
from tests.support.model import LogStory
from tests.support.paths import RECORDINGS

EXPECTED: dict[str, dict[str, Any]] = json.loads((RECORDINGS / "expected.json").read_text())


def shown(server: ServerSnapshot) -> dict[str, Any]:
    """A server's snapshot in the words of `expected.json`."""
    geometry, counters = server.geometry, server.counters
    assert server.request_tokens is not None
    return {
        "geometry": {
            "slots": geometry.slots,
            "slot_context_tokens": geometry.slot_context,
            "pool_capacity_tokens": geometry.capacity,
            "pool_shared": geometry.shared,
            "promised_tokens": geometry.promised,
            "overcommit_ratio": geometry.overcommit_ratio,
            "guaranteed_tokens": geometry.guaranteed,
        },
        "log_lines": counters.error_lines,
        "incidents": counters.incidents,
        "requests_failed": counters.requests_failed,
        "incident_details": [
            {
                "slot_tokens": {str(slot.slot): slot.tokens for slot in incident.slots},
                "sum_tokens": incident.sum_tokens,
                "excess_tokens": incident.excess_tokens,
                "unplaced_batch_tokens": incident.unplaced_batch_tokens,
            }
            for incident in server.incidents
            if incident.cause == "pool"
        ],
        "purges": counters.purges,
        "context_shifts": counters.context_shifts,
        "releases": server.request_tokens.count,
        "answers_truncated": counters.answers_truncated,
    }


def wanted(name: str) -> dict[str, Any]:
    return {key: value for key, value in EXPECTED[name].items() if key not in ("largest_request_tokens", "clients_saw")}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recorded_journal_with_its_polls_shows_what_happened(name: str) -> None:
    (server,) = run_replay(directory=RECORDINGS / name).servers

    assert shown(server) == wanted(name)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_bare_log_alone_shows_the_same(name: str) -> None:
    (server,) = run_replay(log_file=RECORDINGS / name / "server.log").servers

    assert shown(server) == wanted(name)


@pytest.mark.parametrize("name", EXPECTED)
def test_counted_error_lines_are_those_that_grep_counts(name: str) -> None:
    log = (RECORDINGS / name / "server.log").read_bytes()

    (server,) = run_replay(directory=RECORDINGS / name).servers

    assert server.counters.error_lines == sum(b"Context size has been exceeded" in line for line in log.splitlines())


@pytest.mark.parametrize("name", EXPECTED)
def test_failed_requests_are_those_that_clients_saw_fail(name: str) -> None:
    statuses = EXPECTED[name]["clients_saw"]

    (server,) = run_replay(directory=RECORDINGS / name).servers

    assert server.counters.requests_failed == {"pool": statuses.get("500", 0), "slot": statuses.get("400", 0)}


@pytest.mark.parametrize("name", EXPECTED)
def test_every_incident_of_a_recording_adds_up(name: str) -> None:
    (server,) = run_replay(directory=RECORDINGS / name).servers

    assert all(incident.adds_up for incident in server.incidents if incident.cause == "pool")


@pytest.mark.parametrize("name", [name for name in EXPECTED if EXPECTED[name]["releases"]])
def test_the_largest_request_is_in_the_bucket_of_its_size(name: str) -> None:
    largest = EXPECTED[name]["largest_request_tokens"]

    (server,) = run_replay(directory=RECORDINGS / name).servers

    assert server.request_tokens is not None
    full = [bound for bound, count in server.request_tokens.buckets if count == server.request_tokens.count]
    assert full[0] >= largest
    below = [bound for bound, _ in server.request_tokens.buckets if bound < full[0]]
    assert not below or below[-1] < largest


def first_line_at(name: str) -> float:
    first = (RECORDINGS / name / "journal.export").read_text().split("\n", 1)[0]
    return float(first.removeprefix("__REALTIME_TIMESTAMP=")) / 1e6


@pytest.mark.parametrize("name", ["agents-b11434", "replay-b11434-eighth", "replay-b11434-full"])
def test_slot_tokens_before_an_incident_are_those_that_the_server_polled_last(name: str) -> None:
    polls = [json.loads(line) for line in (RECORDINGS / name / "polls.jsonl").read_text().splitlines()]
    last = [poll for poll in polls if poll["/slots"]["body"] and poll["/slots"]["body"][0]["is_processing"]][-1]
    answered = last["t"] + last["/slots"]["ms"] / 1000

    (server,) = run_replay(directory=RECORDINGS / name, at=answered - first_line_at(name) + 0.001).servers

    held = {slot["id"]: slot["n_prompt_tokens"] for slot in last["/slots"]["body"]}
    running = {slot["id"] for slot in last["/slots"]["body"] if slot["is_processing"]}
    assert {slot.id: slot.tokens for slot in server.slots} == held
    assert server.pool is not None
    assert server.pool.processing_tokens == sum(held[slot] for slot in running)


@pytest.mark.parametrize(("seconds", "at_least"), [(459, 0.0), (463, 0.85), (574, 0.95)])
def test_the_full_size_replay_fills_as_it_was_measured_to(seconds: float, at_least: float) -> None:
    """Fill passed 85 % at 461 s and 95 % at 572 s (times of the clients, which started with the first line)."""
    (server,) = run_replay(directory=RECORDINGS / "replay-b11434-full", at=seconds).servers

    assert server.pool is not None
    assert server.pool.fill_ratio is not None
    assert at_least <= server.pool.fill_ratio < at_least + 0.02 if at_least else server.pool.fill_ratio < 0.85


@pytest.mark.parametrize("name", EXPECTED)
def test_a_failed_batch_that_harmed_nobody_is_a_recovery_and_no_other_is(name: str) -> None:
    saw_errors = EXPECTED[name]["clients_saw"].get("500", 0) > 0
    failed_batches = b"failed to find a memory slot" in (RECORDINGS / name / "server.log").read_bytes()

    (server,) = run_replay(directory=RECORDINGS / name).servers

    assert (server.counters.recoveries > 0) == (failed_batches and not saw_errors)


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith("b5541") and EXPECTED[name]["releases"]])
def test_a_build_without_slots_endpoint_tells_its_prompts_by_its_log_alone(name: str) -> None:
    requests = json.loads((RECORDINGS / name / "requests.json").read_text())["requests"]
    sent = [request["prompt_tokens"] for request in requests]

    (server,) = run_replay(log_file=RECORDINGS / name / "server.log").servers

    assert server.request_prompt_tokens is not None
    assert server.request_prompt_tokens.count == EXPECTED[name]["releases"]
    if len(sent) == EXPECTED[name]["releases"]:
        assert server.request_prompt_tokens.sum == sum(sent)


def test_a_build_without_slots_endpoint_shows_each_slots_tokens_while_it_reads() -> None:
    """b5541/unified_overflow: the line with progress = 0.274444 says that slot 3 has read 247 of 900."""
    log = (RECORDINGS / "b5541" / "unified_overflow" / "server.log").read_text(errors="replace").splitlines()
    cut = next(i for i, line in enumerate(log) if "progress = 0.274444" in line)
    story = LogStory().lines("\n".join(log[: cut + 1]))

    tokens = {slot.id: slot.tokens for slot in story.server.snapshot(story.at).slots if slot.processing}

    assert tokens == {0: 900, 1: 900, 2: 900, 3: 247}
