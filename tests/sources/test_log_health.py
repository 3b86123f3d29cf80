"""What the check says of a log file: readable, growing, and a llama-server's."""

from __future__ import annotations

import os
from pathlib import Path

from kvexporter.llama.log import parse_line
from kvexporter.sources.journal_health import JournalHealth
from kvexporter.sources.log_health import LOOK_BYTES, log_health, look_into_file
from kvexporter.sources.log_selection import LogFileSelection, StdinSelection
from tests.support.paths import RECORDINGS

LOG = (RECORDINGS / "b11434" / "unified_overflow" / "server.log").read_bytes()
NOW = 1_796_032_800.0


def look(path: Path, content: bytes, age: float = 0.0) -> JournalHealth:
    path.write_bytes(content)
    os.utime(path, (NOW - age, NOW - age))
    return look_into_file(LogFileSelection(str(path)), parse_line, NOW)


def test_a_servers_log_is_recognised_and_its_age_told(tmp_path: Path) -> None:
    path = tmp_path / "llama.log"
    assert look(path, LOG) == JournalHealth((), (), 1, True, True, "written to just now")
    assert look(path, LOG, 600).detail == "last written to 10 minutes ago"
    assert look(path, b"\0" * 5000 + LOG).has_entries
    old = look(path, LOG, 3 * 86_400)
    assert old.notes == (f"{path} was last written to 3 days ago: does the server log elsewhere?",)


def test_its_lines_are_found_behind_a_long_file_of_others(tmp_path: Path) -> None:
    assert look(tmp_path / "a", b"something else\n" * (3 * LOOK_BYTES // 15) + LOG).has_entries


def test_another_programs_log_and_an_empty_one_are_said(tmp_path: Path) -> None:
    path = tmp_path / "a"
    other = look(path, b"GET / 200\n" * 50)
    assert (other.ok, other.has_entries) == (True, False)
    assert other.notes == (f"no line of llama-server was found in {path}: is it what the server prints?",)
    empty = look(path, b"")
    assert (empty.ok, empty.has_entries) == (True, False)
    assert empty.notes == (f"{path} is empty: nothing was logged yet",)


def test_what_stands_in_the_way_is_said(tmp_path: Path) -> None:
    for health in (
        log_health(LogFileSelection(str(tmp_path / "none"))),
        look_into_file(LogFileSelection(str(tmp_path / "none")), parse_line, NOW),
    ):
        assert health.problems == (f"there is no file {tmp_path}/none: it is read as soon as it is there",)
    assert not log_health(LogFileSelection(str(tmp_path))).ok
    assert log_health(StdinSelection()).ok
