"""The journal that the demonstration makes is a real one."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from kvexporter.demo import journal_writer, unit_messages
from kvexporter.demo.journal_writer import JournalFile, LogFiles, open_journal
from tests.support.journal_files import LiveJournalFile
from tests.support.paths import wait_for


def read(directory: Path, *matches: str) -> list[dict[str, object]]:
    command = ["journalctl", "-D", str(directory), "-o", "json", "--no-pager", *matches]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def test_lines_become_entries_of_the_unit_by_the_process_that_wrote_them(tmp_path: Path) -> None:
    began = time.time()
    journal = JournalFile(tmp_path)
    try:
        journal.write(b"slot release: id  0", pid=123)
        entries = wait_for("the entry to be readable", lambda: read(tmp_path, "_SYSTEMD_UNIT=llama-server.service"))
    finally:
        journal.close()
    (entry,) = entries
    assert entry["MESSAGE"] == "slot release: id  0"
    assert entry["_PID"] == "123"
    assert began - 1 <= int(str(entry["__REALTIME_TIMESTAMP"])) / 1e6 <= time.time() + 1


def test_messages_that_are_no_text_arrive_byte_by_byte(tmp_path: Path) -> None:
    messages = [b"\xff\xfe not UTF-8", b"two\nlines", b"\x1b[31mred\x1b[0m", "grün".encode(), b"a=b=c"]
    with LiveJournalFile(tmp_path) as journal:
        for message in messages:
            journal.write(message)
        wait_for("all entries", lambda: len(read(tmp_path)) == len(messages))
    found = [entry["MESSAGE"] for entry in read(tmp_path)]
    stored = [bytes(message) if isinstance(message, list) else str(message).encode() for message in found]
    assert stored == messages


def test_units_are_told_apart_and_systemd_speaks_of_them(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    try:
        journal.write(b"one", 11, "llama-a.service")
        journal.write(b"two", 12, "llama-b.service")
        journal.write_fields(unit_messages.exited("llama-b.service", 127))
        wait_for("the entries", lambda: len(read(tmp_path)) == 3)
    finally:
        journal.close()
    assert [entry["MESSAGE"] for entry in read(tmp_path, "_SYSTEMD_UNIT=llama-b.service")] == ["two"]
    (said,) = read(tmp_path, "UNIT=llama-b.service", "_PID=1")
    assert said["EXIT_STATUS"] == "127"


def test_a_journal_whose_writer_is_gone_says_so_and_takes_lines_without_an_error(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    journal.close()
    journal.write(b"late", 1)
    assert journal.failed()


def test_without_its_writer_logs_are_files_and_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_writer, "JOURNAL_REMOTE", Path("/nonexistent/systemd-journal-remote"))
    journal = open_journal(tmp_path)
    assert isinstance(journal, LogFiles)
    assert "apt-get install systemd-journal-remote" in journal.lacks
    config = journal.server_config("llama-a.service")
    journal.write(b"one", 1, "llama-a.service")
    journal.write_fields(unit_messages.failed("llama-a.service"))
    journal.write(b"two", 1, "llama-a.service")
    journal.close()
    journal.write(b"late", 1, "llama-a.service")
    assert config == f"log: {{file: {tmp_path}/llama-a.log}}"
    assert (tmp_path / "llama-a.log").read_bytes() == b"one\ntwo\n"
