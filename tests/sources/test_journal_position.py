"""Where reading starts, on journal files made from known entries."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kvexporter.sources.journal_library import JournalUnavailableError
from kvexporter.sources.journal_mark import Mark
from kvexporter.sources.journal_selection import JournalSelection
from tests.support.collected_journal import UNIT, CollectedJournal
from tests.support.journal_entries import START, entry, from_systemd
from tests.support.journal_files import journal_from_export

STARTED = b"39f53479d3a045ac8e11786248231fbf"
STOPPED = b"9d1aaa27d60140bd96365438aad20286"
OLD, NEW = "a" * 32, "b" * 32


def messages_from_start(directory: Path, selection: JournalSelection | None = None) -> list[str]:
    journal = CollectedJournal(directory, selection=selection)
    journal.open()
    journal.drain()
    journal.close()
    return [entry.message.decode() for entry in journal.entries]


def run(invocation: str, first: float, *lines: str) -> list[bytes]:
    start = from_systemd("Started llama-server.service.", STARTED, first, INVOCATION_ID=invocation)
    own = [entry(text, first + 1 + n, _SYSTEMD_INVOCATION_ID=invocation) for n, text in enumerate(lines)]
    return [start, *own]


def test_reading_starts_at_systemds_start_of_the_current_invocation(tmp_path: Path) -> None:
    journal_from_export(b"".join([*run(OLD, 0, "old 1", "old 2"), *run(NEW, 10, "new 1", "new 2")]), tmp_path)
    assert messages_from_start(tmp_path) == ["Started llama-server.service.", "new 1", "new 2"]


def test_the_current_invocation_may_begin_in_an_older_file(tmp_path: Path) -> None:
    journal_from_export(b"".join([*run(OLD, 0, "old"), *run(NEW, 10, "new 1")]), tmp_path, "a.journal")
    journal_from_export(entry("new 2", 20, _SYSTEMD_INVOCATION_ID=NEW), tmp_path, "b.journal")
    assert messages_from_start(tmp_path) == ["Started llama-server.service.", "new 1", "new 2"]


def test_a_unit_that_has_just_been_started_and_said_nothing_yet_is_a_new_invocation(tmp_path: Path) -> None:
    journal_from_export(b"".join([*run(OLD, 0, "old"), *run(NEW, 10)]), tmp_path)
    assert messages_from_start(tmp_path) == ["Started llama-server.service."]


def test_a_stopped_unit_is_read_from_the_start_of_its_last_invocation(tmp_path: Path) -> None:
    stop = from_systemd("Stopped llama-server.service.", STOPPED, 20, INVOCATION_ID=NEW)
    journal_from_export(b"".join([*run(OLD, 0, "old"), *run(NEW, 10, "new"), stop]), tmp_path)
    assert messages_from_start(tmp_path) == [
        "Started llama-server.service.",
        "new",
        "Stopped llama-server.service.",
    ]


def test_newest_lines_that_lack_their_invocation_do_not_hide_it(tmp_path: Path) -> None:
    bare = [entry(f"bare {n}", 20 + n) for n in range(3)]
    journal_from_export(b"".join([*run(OLD, 0, "old"), *run(NEW, 10, "new"), *bare]), tmp_path)
    expected = ["Started llama-server.service.", "new", "bare 0", "bare 1", "bare 2"]
    assert messages_from_start(tmp_path) == expected


def test_journalds_own_message_about_the_unit_is_not_taken_for_an_invocation_of_it(tmp_path: Path) -> None:
    notice = entry(
        "Suppressed 3 messages from llama-server.service",
        20,
        _PID="99",
        _SYSTEMD_UNIT="systemd-journald.service",
        _SYSTEMD_INVOCATION_ID="c" * 32,
        OBJECT_SYSTEMD_UNIT=UNIT,
    )
    journal_from_export(b"".join([*run(OLD, 0, "old"), *run(NEW, 10, "new"), notice]), tmp_path)
    assert messages_from_start(tmp_path)[:2] == ["Started llama-server.service.", "new"]


def test_without_invocations_reading_starts_with_the_newest_process_of_its_boot(tmp_path: Path) -> None:
    lines = [
        entry("same pid, other boot", 0, _PID="7", _BOOT_ID="e" * 32),
        entry("old", 1, _PID="6"),
        entry("new 1", 2, _PID="7"),
        entry("new 2", 3, _PID="7"),
    ]
    journal_from_export(b"".join(lines), tmp_path)
    assert messages_from_start(tmp_path) == ["new 1", "new 2"]


def test_a_container_is_read_from_its_own_start_not_from_its_daemons(tmp_path: Path) -> None:
    common = {"_SYSTEMD_UNIT": "docker.service", "_SYSTEMD_INVOCATION_ID": NEW, "CONTAINER_NAME": "llama"}
    lines = [
        entry("old container", 0, CONTAINER_ID_FULL="1" * 64, **common),
        entry("new 1", 1, CONTAINER_ID_FULL="2" * 64, **common),
        entry("new 2", 2, CONTAINER_ID_FULL="2" * 64, **common),
    ]
    journal_from_export(b"".join(lines), tmp_path)
    selection = JournalSelection(matches=({"CONTAINER_NAME": "llama"},), directory=str(tmp_path))
    assert messages_from_start(tmp_path, selection) == ["new 1", "new 2"]


def test_a_folder_without_a_selection_is_read_from_its_head(tmp_path: Path) -> None:
    journal_from_export(b"".join([*run(OLD, 0, "old"), *run(NEW, 10, "new")]), tmp_path)
    messages = messages_from_start(tmp_path, JournalSelection(directory=str(tmp_path)))
    assert len(messages) == 4


def test_reading_goes_on_right_after_a_cursor_even_among_equal_timestamps(tmp_path: Path) -> None:
    journal_from_export(b"".join(entry(f"line {n}", 5) for n in range(2000)), tmp_path)
    journal = CollectedJournal(tmp_path)
    journal.open(head=True)
    first = journal.reader.drain(0.0, journal.entries.append)
    assert 0 < first.read < 2000
    assert first.more
    cursor = journal.reader.position()
    journal.close()
    again = CollectedJournal(tmp_path)
    start = again.open(cursor)
    again.drain()
    again.close()
    assert start.kind == "position"
    assert journal.messages + again.messages == [b"line %d" % n for n in range(2000)]


def test_the_last_entrys_cursor_gives_nothing_until_something_is_written(tmp_path: Path) -> None:
    journal_from_export(entry("only", 5), tmp_path)
    journal = CollectedJournal(tmp_path)
    journal.open()
    journal.drain()
    again = CollectedJournal(tmp_path)
    again.open(journal.reader.position())
    again.drain()
    assert again.entries == []
    journal_from_export(entry("more", 6), tmp_path, "later.journal")
    again.follow_until("the new file to be read", lambda: again.messages == [b"more"])
    journal.close()
    again.close()


def test_a_cursor_whose_entry_is_gone_continues_with_the_next_one_and_says_so(tmp_path: Path) -> None:
    gone = journal_from_export(b"".join(entry(f"gone {n}", n) for n in range(5)), tmp_path, "a.journal")
    journal_from_export(b"".join(entry(f"kept {n}", 10 + n) for n in range(3)), tmp_path, "b.journal")
    middle = _cursor_of(tmp_path, b"gone 2")
    gone.unlink()
    again = CollectedJournal(tmp_path)
    assert again.open(mark(middle)).kind == "gap"
    again.drain()
    again.close()
    assert again.messages == [b"kept 0", b"kept 1", b"kept 2"]


def test_a_vacuum_of_what_had_been_read_is_no_gap(tmp_path: Path) -> None:
    gone = journal_from_export(b"".join(entry(f"gone {n}", n) for n in range(5)), tmp_path, "a.journal")
    journal_from_export(b"".join(entry(f"of others {n}", 3600 + n, _SYSTEMD_UNIT="x") for n in range(3)), tmp_path)
    last = _cursor_of(tmp_path, b"gone 4")
    gone.unlink()
    for complete, kind in ((3599, "gap"), (3600, "position")):
        again = CollectedJournal(tmp_path)
        assert again.open(mark(last, complete=START + complete * 1_000_000)).kind == kind
        again.drain()
        again.close()
        assert again.messages == []


def test_a_cursor_behind_which_nothing_is_left_waits_for_what_comes(tmp_path: Path) -> None:
    gone = journal_from_export(entry("gone", 100), tmp_path, "b.journal")
    cursor = _cursor_of(tmp_path, b"gone")
    gone.unlink()
    journal_from_export(entry("older", 0), tmp_path, "a.journal")
    again = CollectedJournal(tmp_path)
    assert again.open(mark(cursor)).kind == "gap"
    again.drain()
    assert again.entries == []
    again.close()


@pytest.mark.parametrize("split", [0, 1, 5, 9, 10])
@pytest.mark.parametrize("text", ["line {}", "the same line"])
def test_reading_goes_on_where_it_stopped_in_a_burst_that_was_moved_to_another_file(
    tmp_path: Path, split: int, text: str
) -> None:
    """A flush from /run to /var copies entries: other file and number, same boot and times, in the same order."""
    burst = [entry(text.format(n), 5) for n in range(10)]
    before, after = entry("before", 4), entry("after", 6)
    runtime, persistent = tmp_path / "run", tmp_path / "var"
    journal_from_export(b"".join([before, *burst[:split]]), runtime)
    first = CollectedJournal(runtime)
    first.open(head=True)
    first.drain()
    position = first.reader.position()
    first.close()
    journal_from_export(b"".join([before, *burst, after]), persistent)

    again = CollectedJournal(persistent)
    start = again.open(position)
    again.drain()
    again.close()

    assert start.kind == "position"
    assert [*first.messages, *again.messages] == [
        b"before",
        *(text.format(n).encode() for n in range(10)),
        b"after",
    ]


def test_a_position_within_a_burst_that_was_moved_twice_is_still_exact(tmp_path: Path) -> None:
    burst = [entry("the same line", 5) for _ in range(1200)]
    read = 0
    position: str | None = None
    for number in range(5):
        folder = tmp_path / str(number)
        journal_from_export(b"".join([entry("before", 4), *burst]), folder)
        journal = CollectedJournal(folder)
        journal.open(position, head=True)
        # A chunk that brings something new, and in the last round all the rest.
        while number == 4 and journal.drain().more:
            pass
        while journal.reader.drain(0.0, journal.entries.append).more and not journal.entries:
            pass
        position = journal.reader.position()
        journal.close()
        read += len(journal.messages)

    assert read == 1 + 1200


GOOD = f"s={OLD};i=1;b={OLD};m=1;t=1;x=1"


@pytest.mark.parametrize(
    "position",
    [
        "",
        "nonsense",
        "s=1;i=zz",
        "\0",
        "ü",
        "s=" + "9" * 10_000,
        GOOD,
        f"{GOOD} 1",
        f"{GOOD} -1 0",
        f"{GOOD} 1 0 0",
        f"{GOOD}0000000000000000 1 0",
    ],
)
def test_a_malformed_position_starts_anew_and_says_so(tmp_path: Path, position: str) -> None:
    journal_from_export(b"".join([*run(OLD, 0, "old"), *run(NEW, 10, "new")]), tmp_path)
    journal = CollectedJournal(tmp_path)
    start = journal.open(position)
    journal.drain()
    journal.close()
    assert start.position_refused
    assert start.kind == "invocation"
    assert journal.messages == [b"new"]


def test_a_folder_that_is_not_there_cannot_be_opened_and_drained(tmp_path: Path) -> None:
    journal = CollectedJournal(tmp_path / "missing")
    with pytest.raises(JournalUnavailableError, match="there is no journal folder"):
        journal.open()
    with pytest.raises(JournalUnavailableError, match="not open"):
        journal.drain()


def mark(cursor: str, complete: int = 0) -> str:
    """The position of a reader that stopped at this entry."""
    return str(Mark(cursor, 1, complete))


def _cursor_of(directory: Path, message: bytes) -> str:
    """The cursor of the entry with that message, as journalctl tells it."""
    command = ["journalctl", "-D", str(directory), "-o", "json", f"MESSAGE={message.decode()}"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    return str(json.loads(done.stdout)["__CURSOR"])
