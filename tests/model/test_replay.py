"""Replays: which servers a journal export of a whole host is of, and what is told besides the end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvexporter.replay import replay, run_replay
from kvexporter.sources.recording import RecordingError
from tests.support.journal_entries import entry, from_systemd
from tests.support.paths import RECORDINGS

RESTART = b"5eb03494b6584870a536b337290809b3"


def log(name: str) -> list[bytes]:
    return (RECORDINGS / name / "server.log").read_bytes().splitlines()


def lines(name: str, unit: str, pid: int, start: float = 0.0, step: float = 0.001) -> list[tuple[float, bytes]]:
    """A recorded log as entries of another unit and process."""
    return [
        (at, entry(line, at, _SYSTEMD_UNIT=unit, _PID=str(pid)))
        for at, line in ((start + number * step, line) for number, line in enumerate(log(name)))
    ]


def export(tmp_path: Path, *parts: list[tuple[float, bytes]]) -> Path:
    """Several journals in one, by time."""
    path = tmp_path / "host.export"
    path.write_bytes(
        b"".join(data for _, data in sorted((item for part in parts for item in part), key=lambda i: i[0]))
    )
    return path


def test_a_whole_hosts_export_has_one_server_for_each_unit_of_a_llama_server(tmp_path: Path) -> None:
    ssh = [(n / 100, entry("Accepted publickey for root", n / 100, _SYSTEMD_UNIT="ssh.service")) for n in range(20)]
    # A client logs the error that it was answered with.
    client = [(9.0, entry("500: Context size has been exceeded.", 9.0, _SYSTEMD_UNIT="agent.service"))]
    restart = [(10.0, from_systemd("restart", RESTART, 10.0, "llama-b.service", N_RESTARTS="1"))]
    path = export(
        tmp_path,
        lines("b11434/unified_overflow", "llama-a.service", 100),
        lines("b11434/one_slot_q8", "llama-b.service", 200),
        ssh,
        client,
        restart,
    )
    first, second = run_replay(journal_export=path).servers
    assert [(server.name, server.unit) for server in (first, second)] == [
        ("llama-a", "llama-a.service"),
        ("llama-b", "llama-b.service"),
    ]
    assert (first.geometry.capacity, second.geometry.capacity) == (4096, 3072)
    assert (first.counters.incidents["pool"], second.counters.incidents["pool"]) == (1, 0)
    assert (first.counters.unit_restarts, second.counters.unit_restarts) == (0, 1)
    assert first.counters.error_lines == sum(
        b"Context size has been exceeded" in line for line in log("b11434/unified_overflow")
    )


def test_two_servers_that_run_side_by_side_in_one_unit_are_two(tmp_path: Path) -> None:
    path = export(
        tmp_path,
        lines("b11434/unified_overflow", "models.service", 100),
        lines("b11434/one_slot_q8", "models.service", 200, 0.0005),
    )
    first, second = run_replay(journal_export=path).servers
    port = next(
        found[1]
        for line in log("b11434/one_slot_q8")
        if (found := re.search(rb"listening on http://127.0.0.1:(\d+)", line))
    )
    assert (first.name, second.name) == ("models", f"127.0.0.1:{port.decode()}")
    assert (first.geometry.capacity, second.geometry.capacity) == (4096, 3072)


def test_a_server_and_its_restart_are_one(tmp_path: Path) -> None:
    path = export(
        tmp_path,
        lines("b11434/unified_overflow", "llama.service", 100),
        lines("b11434/unified_overflow", "llama.service", 200, 60.0),
    )
    (server,) = run_replay(journal_export=path).servers
    assert server.counters.incidents["pool"] == 2


def test_containers_are_told_apart_by_their_names(tmp_path: Path) -> None:
    parts = [
        [
            (at, data.replace(b"\n\n", f"\nCONTAINER_NAME={name}\n\n".encode()))
            for at, data in lines(of, "docker.service", 7)
        ]
        for name, of in (("big", "b11434/unified_overflow"), ("small", "b11434/one_slot_q8"))
    ]
    servers = run_replay(journal_export=export(tmp_path, *parts)).servers
    assert [(server.name, server.unit, server.geometry.capacity) for server in servers] == [
        ("big", None, 4096),
        ("small", None, 3072),
    ]


def test_polls_of_one_server_beside_the_lines_of_two_are_refused(tmp_path: Path) -> None:
    export(tmp_path, lines("b11434/unified_overflow", "a.service", 1), lines("b11434/one_slot_q8", "b.service", 2))
    polls = RECORDINGS / "b11434" / "unified_overflow" / "polls.jsonl"
    with pytest.raises(RecordingError, match=r"lines of 2 servers \(a, b"):
        run_replay(journal_export=tmp_path / "host.export", polls=polls)


def test_the_peak_is_told_with_its_time() -> None:
    # The fill passed 95 % 572 s after the start, and the requests died after 774 s with 4 tokens too many.
    folder = RECORDINGS / "replay-b11434-full"
    first = int(re.search(rb"__REALTIME_TIMESTAMP=(\d+)", (folder / "journal.export").read_bytes())[1]) / 1e6  # type: ignore[index]
    replayed = replay(folder)
    ratio, at = replayed.peaks["llama-server"]
    assert ratio > 0.99
    assert 700 < at - first < 790
    assert not replayed.since_start
