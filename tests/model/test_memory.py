"""An exporter that is started anew in the middle of a log counts as one that never stopped."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from kvexporter.llama.log import parse_line
from kvexporter.llama.slots import SlotSample
from kvexporter.server import Server
from kvexporter.server_memory import ServerMemory
from kvexporter.snapshot import ServerSnapshot
from tests.support.paths import RECORDINGS

NAMES = list(json.loads((RECORDINGS / "expected.json").read_text()))


def fresh() -> Server:
    return Server("s", unit="s.service")


def feed(server: Server, lines: list[bytes], start: int, end: int) -> None:
    for number in range(start, end):
        parsed = parse_line(lines[number])
        if parsed is not None:
            server.line(parsed, 1000 + number / 100)


def restarted(server: Server) -> Server:
    stored = msgspec.json.encode(server.memory())
    again = fresh()
    again.remember(msgspec.json.decode(stored, type=ServerMemory))
    return again


def told(server: Server) -> ServerSnapshot:
    """All that the log tells. Whether it answers now and since when, and time that nobody looked, are not the log's."""
    snapshot = server.snapshot(1e9)
    pool = replace(snapshot.pool, fill_peak_ratio=None) if snapshot.pool is not None else None
    life = replace(snapshot.life, down_since=None, loading_since=None)
    return replace(snapshot, up=None, life=life, fill_seconds=None, pool=pool)


def cuts(lines: list[bytes]) -> list[int]:
    """Every line around an error, and a spread of the others."""
    troubled = [
        i for i, line in enumerate(lines) if b"exceeded" in line or b"memory slot" in line or b"purging" in line
    ]
    return sorted({*range(0, len(lines), max(1, len(lines) // 15)), *troubled[-40:], *(i + 1 for i in troubled[-10:])})


def test_time_in_which_only_requests_are_logged_counts_after_a_restart_too() -> None:
    lines = [
        b"srv    load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'",
        b"srv  llama_server: model loaded",
        b"slot launch_slot_: id  0 | task 1 | processing task, is_child = 0",
        b"slot print_timing: id  0 | task 1 | prompt processing, n_tokens =   2048, progress = 0.50, t =  11.40 s",
    ]
    whole = fresh()
    feed(whole, lines, 0, len(lines))
    again = restarted(whole)
    asked = parse_line(b"srv  log_server_r: done request: GET /slots 127.0.0.1 200")
    assert asked is not None
    for server in (whole, again):
        before = server.snapshot(0).fill_seconds
        for second in range(60):
            server.line(asked, 2000.0 + second)
        after = server.snapshot(0).fill_seconds
        assert after is not None
        # The first of them tells that the time from here on is the exporter's own.
        assert after.buckets[-1][1] - (0 if before is None else before.buckets[-1][1]) >= 59


@pytest.mark.parametrize("name", NAMES)
def test_a_restart_at_any_line_changes_nothing(name: str) -> None:
    lines = (RECORDINGS / name / "server.log").read_bytes().splitlines()
    whole = fresh()
    feed(whole, lines, 0, len(lines))
    whole.conclude()
    expected = told(whole)

    for cut in cuts(lines):
        first = fresh()
        feed(first, lines, 0, cut)
        second = restarted(first)
        feed(second, lines, cut, len(lines))
        second.conclude()
        assert told(second) == expected, f"restarted before line {cut + 1}"


@pytest.mark.parametrize("name", ["b11434/unified_overflow", "b8635/uneven_overflow", "agents-b11434"])
def test_a_restart_after_every_single_line_changes_nothing(name: str) -> None:
    lines = (RECORDINGS / name / "server.log").read_bytes().splitlines()
    whole = fresh()
    feed(whole, lines, 0, len(lines))
    again = fresh()
    for number in range(len(lines)):
        feed(again, lines, number, number + 1)
        again = restarted(again)

    assert told(again) == told(whole)


def test_what_polls_told_of_running_tasks_is_not_remembered() -> None:
    server = fresh()
    server.slots_polled([SlotSample(0, True, 5, 2048, 700, 10, None)], 1000)
    again = restarted(server)
    assert again.snapshot(1001).slots == ()
    again.slots_polled([SlotSample(0, True, 5, 2048, 710, 20, None)], 1002)
    assert [slot.tokens for slot in again.snapshot(1002).slots] == [710]
