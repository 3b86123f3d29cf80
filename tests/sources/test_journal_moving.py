"""The journal's move from /run to /var, step by step: two folders stand for the two places, and entries are copied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvexporter.sources import journal, journal_folders
from kvexporter.sources.drain import DrainResult
from kvexporter.sources.journal import MOVING_SECONDS, JournalReader
from kvexporter.sources.journal_selection import JournalSelection
from tests.support.collected_journal import CollectedJournal
from tests.support.each import each
from tests.support.journal_entries import entry
from tests.support.journal_files import LiveJournalFile
from tests.support.paths import wait_for

OLD_BOOT = "e" * 32
BURST = [entry(f"line {n % 7}", 5) for n in range(30)]
"""Lines of one moment, some of them the same."""


class Host:
    """A reader of two folders, as libsystemd looks into /run/log/journal and /var/log/journal."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = directory / ("a" * 32)
        self.var = directory / ("b" * 32)
        monkeypatch.setattr(journal_folders, "ROOTS", (str(self.run), str(self.var)))
        self.volatile = LiveJournalFile(self.run)
        self.persistent = LiveJournalFile(self.var)
        self.now = 1000.0
        self.directory = directory
        self.journal = CollectedJournal(directory)
        self.renew()

    def renew(self) -> None:
        """Another exporter."""
        selection = JournalSelection(unit="llama-server", directory=str(self.directory))
        self.journal.reader = JournalReader(selection, each(lambda message: True), clock=lambda: self.now)

    def write(self, place: LiveJournalFile, *entries: bytes) -> None:
        place.write_export(b"".join(entries))

    def read_until(self, count: int) -> None:
        self.journal.follow_until(f"{count} lines", lambda: len(self.journal.messages) >= count)

    def wait_moving(self) -> DrainResult:
        """Read until the reader waits for the end of the move."""
        results: list[DrainResult] = []

        def moving() -> bool:
            results.append(self.journal.drain())
            return self.journal.reader._moving_since is not None

        wait_for("the reader to wait", moving, interval=0.01)
        return results[-1]

    def end_move(self) -> None:
        self.volatile.close()
        for file in self.run.iterdir():
            file.unlink()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    host = Host(tmp_path, monkeypatch)
    with host.volatile, host.persistent:
        # What is in /var is of an earlier boot.
        host.write(host.persistent, entry("of an earlier boot", 0, _BOOT_ID=OLD_BOOT))
        wait_for("the old entry", lambda: stored(host.persistent) == 1)
        host.write(host.volatile, entry("first", 4), *BURST)
        wait_for("the new entries", lambda: stored(host.volatile) == 31)
        host.journal.open(head=True)
        host.read_until(32)
        yield host
        host.journal.close()


def stored(place: LiveJournalFile) -> int:
    """Entries in a folder: another folder's later ones must not be read before they are all there."""
    place.wait_for_file()
    reader = CollectedJournal(place.directory)
    reader.open(head=True)
    reader.drain()
    reader.close()
    return len(reader.messages)


def texts(host: Host) -> list[str]:
    return [message.decode() for message in host.journal.messages]


EXPECTED = ["of an earlier boot", "first", *(f"line {n % 7}" for n in range(30))]


def test_copies_are_not_handed_on_while_both_places_have_them_nor_afterwards(host: Host) -> None:
    assert texts(host) == EXPECTED
    host.write(host.persistent, entry("first", 4), *BURST)
    assert not host.wait_moving().complete
    host.write(host.persistent, entry("after", 6))
    for _ in range(3):
        assert host.journal.drain().read == 0
    host.end_move()
    host.read_until(33)
    assert texts(host) == [*EXPECTED, "after"]
    assert host.journal.counts["gap"] == 0


def test_what_was_not_read_before_the_move_is_read_from_the_copies(host: Host) -> None:
    host.write(host.persistent, entry("first", 4), *BURST)
    host.wait_moving()
    rest = [entry(f"rest {n}", 5) for n in range(5)]
    host.write(host.volatile, *rest)
    host.write(host.persistent, *rest, entry("after", 6))
    host.end_move()
    host.read_until(38)
    assert texts(host) == [*EXPECTED, *(f"rest {n}" for n in range(5)), "after"]
    assert host.journal.counts["gap"] == 0


def test_another_exporter_goes_on_while_or_after_the_journal_is_moved(host: Host) -> None:
    for ended in (False, True):
        position = host.journal.reader.position()
        host.journal.close()
        if ended:
            host.write(host.persistent, entry("after", 6))
            host.end_move()
        else:
            host.write(host.persistent, entry("first", 4), *BURST)
        host.renew()
        assert host.journal.open(position).kind == "position"
        if not ended:
            host.wait_moving()
    host.read_until(33)
    assert texts(host) == [*EXPECTED, "after"]


def test_a_move_that_does_not_end_is_said_and_reading_goes_on_without_the_copies(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    host.write(host.persistent, entry("first", 4), *BURST)
    host.wait_moving()
    host.now += MOVING_SECONDS + 1
    assert host.journal.drain().gap
    host.write(host.volatile, entry("after", 6), entry("later", 7))
    host.read_until(34)
    assert texts(host) == [*EXPECTED, "after", "later"]
    assert "does not end" in caplog.text
    assert journal.log.name in {record.name for record in caplog.records}
