"""Memory is bounded whatever a log, a server or a client sends, and what is left out is counted."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator

import pytest

from kvexporter.facts import JournalEntry, UnitExited
from kvexporter.intake import MAX_CHILDREN, LogIntake, take_answer
from kvexporter.llama.log import parse_line
from kvexporter.metrics.exposition import LABEL_LIMIT, exposition
from kvexporter.pool import MAX_SLOTS
from kvexporter.replay import run_replay
from kvexporter.server import Server
from kvexporter.snapshot import ExporterSnapshot, ServerSnapshot
from tests.fuzz.invariants import assert_bounded, assert_renderable, assert_sane
from tests.support.model import LogStory
from tests.support.paths import RECORDINGS


def server_with_a_thousand_slots() -> Server:
    server = Server("s", unit="s.service")
    slots = [{"id": i, "id_task": i, "n_ctx": 4096, "is_processing": True, "n_prompt_tokens": 100} for i in range(1000)]
    take_answer(server, "slots", json.dumps(slots).encode(), 1.0)
    return server


def test_a_thousand_slots_are_all_shown() -> None:
    snapshot = server_with_a_thousand_slots().snapshot(1.0)
    assert len(snapshot.slots) == 1000
    assert snapshot.pool is not None
    assert snapshot.pool.processing_tokens == 100_000
    assert_renderable([snapshot], 1.0)


def test_slots_beyond_the_bound_are_left_out_and_counted() -> None:
    story = LogStory()
    for slot in range(MAX_SLOTS + 5):
        story.line(f"slot launch_slot_: id {slot:2d} | task {slot} | processing task")
    assert len(story.server.snapshot(story.at).slots) == MAX_SLOTS
    assert story.server.slots_left_out == 5


def hostile_lines(round_number: int) -> Iterator[str]:
    """Lines each of which names a slot, a task, an offset, a path and a port that were never seen before."""
    n = round_number
    slot = n % 10_000
    yield f"slot launch_slot_: id {slot} | task {n} | processing task"
    yield f"slot update_slots: id {slot} | task {n} | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = {n}"
    yield f"slot print_timing: id {slot} | task {n} | eval time = 10.0 ms / {n} tokens"
    yield f"slot release: id {slot} | task {n} | stop processing: n_tokens = {n}, truncated = 0"
    yield f"srv send_error: task id = {n}, error: Context size has been exceeded."
    yield f"srv cancel_tasks: cancel task, id_task = {n + 7_000_000}"
    yield f"srv log_server_r: done request: GET /p{n} 127.0.0.1 {100 + n % 900}"
    yield "decode: failed to find a memory slot for batch of size 512"
    yield (
        "srv update_slots: failed to find free space in the KV cache, retrying with smaller batch size, "
        f"i = {n}, n_batch = 256, ret = 1"
    )


@pytest.mark.parametrize(
    "which",
    [range(9), (3,), (2, 3), (4,), (7, 8), (0, 1), (7, 8, 3), (7, 8, 4, 3)],
    ids=["all", "releases", "timings", "errors", "failures", "launches", "failures-releases", "cascades"],
)
def test_a_log_that_always_names_something_new_fills_no_memory(which: tuple[int, ...]) -> None:
    story = LogStory()
    for number in range(12_000):
        lines = list(hostile_lines(number))
        for index in which:
            story.line(lines[index])
    assert_bounded(story.server)
    assert_sane(story.server.snapshot(story.at))


def test_exits_with_ever_new_status_are_counted_under_a_bounded_number_of_names() -> None:
    server = Server("s", unit="s.service")
    for number in range(1000):
        server.unit_event(UnitExited("exited", str(number)), 1.0)
    exits = server.snapshot(1.0).counters.unit_exits
    assert len(exits) <= 51
    assert sum(exits.values()) == 1000


def test_incidents_with_a_thousand_slots_are_kept_by_the_slots_that_they_hold() -> None:
    story = LogStory()
    for incident in range(30):
        for slot in range(1000):
            story.line(f"slot launch_slot_: id {slot} | task {incident * 1000 + slot} | processing task")
        story.line("srv update_slots: Context size has been exceeded. off = 0, n_batch = 1, ret = 1")
        for slot in range(1000):
            story.line(f"slot release: id {slot} | task {incident * 1000 + slot} | stop processing: n_tokens = 9")
        story.wait(10)
    snapshot = story.server.snapshot(story.at)
    assert snapshot.counters.incidents["pool"] == 30
    assert sum(len(kept.slots) for kept in snapshot.incidents) <= 4096
    assert snapshot.last_incident is not None
    assert len(snapshot.last_incident.slots) == 1000
    assert_bounded(story.server)


@pytest.mark.parametrize("number", ["1" + "0" * 30, "99999999999999", str(2**63), "2" + "0" * 12])
@pytest.mark.parametrize(
    "line",
    [
        "slot release: id  3 | task 6 | stop processing: n_tokens = {}, truncated = 0",
        "slot update_slots: id  3 | task 6 | prompt done, n_tokens = {}",
        "srv load_model: initializing, n_slots = 4, n_ctx_slot = {}, kv_unified = 'true'",
        "srv load_model: initializing, n_slots = {}, n_ctx_slot = 4096, kv_unified = 'true'",
        "slot release: id  {} | task 6 | stop processing: n_tokens = 5, truncated = 0",
        '{{"level":"INFO","timestamp":1,"msg":"slot released","id_slot":3,"id_task":6,"n_past":{}}}',
        "srv get_availabl: purging slot 3 with {} tokens",
    ],
)
def test_numbers_beyond_belief_say_nothing(line: str, number: str) -> None:
    assert parse_line(line.format(number).encode()) is None


def test_speeds_beyond_belief_are_not_observed() -> None:
    line = (
        "slot print_timing: id  0 | task 4 | eval time = 1.00 ms / 5 tokens ( 0.2 ms per token, {} tokens per second)"
    )
    story = LogStory()
    for speed in ("1e308", "-5.0", "inf", "nan", "-nan", "9999999999999.0", "12.5"):
        story.line(line.format(speed))
    speeds = story.server.snapshot(story.at).generation_speed
    assert speeds is not None
    assert (speeds.count, speeds.sum) == (1, 12.5)


def test_lines_of_48_kibibytes_cost_nothing_that_stays() -> None:
    server = Server("s")
    intake = LogIntake(lambda port, pid: server)
    line = b"slot release: id  3 | task 6 | stop processing: n_tokens = 5, " + b"x" * 49_000
    tracemalloc.start()
    try:
        for number in range(2000):
            intake.entry(JournalEntry(float(number), line + b"%d" % number))
        assert tracemalloc.get_traced_memory()[0] < 2**20
    finally:
        tracemalloc.stop()


def test_three_hundred_thousand_lines_of_real_logs_leave_memory_flat() -> None:
    lines = (RECORDINGS / "b11434" / "unified_overflow" / "server.log").read_bytes().splitlines()
    lines += (RECORDINGS / "b6666" / "unified_overflow" / "server.log").read_bytes().splitlines()
    server = Server("s", unit="s.service")
    intake = LogIntake(lambda port, pid: server)
    at, read = 1.0, 0
    sizes = []
    tracemalloc.start()
    try:
        for part in range(4):
            while read < 75_000 * (part + 1):
                for line in lines:
                    at += 0.001
                    intake.line(line, at)
                read += len(lines)
                server.take_news()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(sizes) < 8 * 2**20
    # What is kept of incidents and tasks is full after the first part.
    assert sizes[3] - sizes[1] < 128 * 1024
    assert_bounded(server)


def test_forged_ports_bring_forth_a_bounded_number_of_servers(tmp_path_factory: pytest.TempPathFactory) -> None:
    log = tmp_path_factory.mktemp("log") / "server.log"
    log.write_text("".join(f"[{port}] srv update_slots: all slots are idle\n" for port in range(1, 99_999, 7)))
    snapshot = run_replay(log_file=log)
    assert len(snapshot.servers) <= MAX_CHILDREN + 1
    assert snapshot.journal_lines["matched"] == len(range(1, 99_999, 7))


def test_values_of_labels_are_cut_and_stay_apart() -> None:
    names = ["n" * 500 + ending for ending in ("a", "b")] + ["é" * LABEL_LIMIT, "short"]
    text = assert_renderable([ServerSnapshot(name=name, up=True) for name in names], 1.0)
    assert text.count("llama_up{") == 4
    assert f'server="{"é" * LABEL_LIMIT}"' in text


def test_two_hundred_servers_are_rendered() -> None:
    servers = tuple(server_with_a_thousand_slots().snapshot(1.0) for _ in range(2))
    names = [ServerSnapshot(name=f"s{number}", up=True, slots=servers[0].slots[:8]) for number in range(200)]
    assert exposition(ExporterSnapshot(1.0, tuple(names))).count("llama_slot_tokens{") == 1600
