"""The journal that the demonstration makes is a real one."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from kvexporter.demo.journal_writer import JournalFile
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
