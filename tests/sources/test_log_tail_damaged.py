"""Packed files that cannot be unpacked to their end: what is read instead, never twice, and what is counted as lost."""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvexporter.sources import log_content
from kvexporter.sources.log_lines import MAX_LINE
from tests.support.log_rotation import LogFile, Reader

RUNT = 30
"""Bytes of a packed file of which no line can be unpacked."""
MANY = 30_000
"""Lines of a file of which more can be unpacked than is read at once, though half of it is missing."""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogFile]:
    file = LogFile(tmp_path / "llama.log")
    yield file
    file.close()


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpack little at once: of a small damaged file the beginning is read, as of a large one."""
    monkeypatch.setattr(log_content, "_FIRST_BYTES", 2048)
    monkeypatch.setattr(log_content, "_SCAN_BYTES", 4096)


def cut(packed: Path, size: int) -> None:
    """Cut a packed file off, as a full disk or a power failure does; its times stay."""
    status = packed.stat()
    os.truncate(packed, size)
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))


def halve(packed: Path) -> None:
    cut(packed, packed.stat().st_size // 2)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("times", ["of the plain file", "of the packing"])
def test_a_file_that_is_damaged_before_the_place_where_it_was_left_is_not_read_again(log: LogFile, times: str) -> None:
    log.write(1000)
    reader = Reader(log.path)
    reader.read()
    log.rename()
    log.reopen()
    log.write(MANY)
    reader.read()
    assert reader.numbers == list(range(1000 + MANY))

    log.write(10)  # lost
    log.rename()
    log.reopen()
    log.write(3)
    older, left = log.pack(log.path.with_name("llama.log.2")), log.pack(log.path.with_name("llama.log.1"))
    if times == "of the packing":
        for packed in (older, left):
            os.utime(packed)
    halve(left)
    with gzip.open(left) as stream:
        assert len(stream.read(2 * MAX_LINE)) == 2 * MAX_LINE, "much of what was read can be unpacked"
        with pytest.raises(EOFError):
            stream.read()
    log.rename()
    log.reopen()
    log.write(2)
    newest = log.path.with_name("llama.log.1")
    os.utime(newest)
    reader.restart()
    for _ in range(3):
        reader.read()
    assert reader.numbers == [*range(1000 + MANY), *range(1010 + MANY, 1015 + MANY)]
    assert reader.gaps == 1


@pytest.mark.usefixtures("small_steps")
def test_a_file_that_is_damaged_before_that_place_waits_for_what_follows_and_is_not_read_again(log: LogFile) -> None:
    log.write(MANY)
    reader = Reader(log.path)
    reader.read()
    log.write(10)  # lost
    left = log.pack(log.rename())
    halve(left)
    log.reopen()
    reader.restart()
    for _ in range(3):
        reader.read()
    assert (len(reader.numbers), reader.gaps) == (MANY, 0)
    log.write(2)
    for _ in range(3):
        reader.read()
    assert (reader.numbers, reader.gaps) == ([*range(MANY), MANY + 10, MANY + 11], 1)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize(("times", "gaps"), [("of the plain file", 0), ("of the packing", 1)])
def test_a_file_that_is_damaged_by_its_packing_while_it_is_followed_is_not_read_again(
    log: LogFile, times: str, gaps: int
) -> None:
    """One that was packed with a later time may hold more than was read."""
    log.write(MANY)
    reader = Reader(log.path)
    reader.read()
    plain = log.rename()
    reader.read()
    packed = log.pack(plain)
    halve(packed)
    if times == "of the packing":
        os.utime(packed)
    log.reopen()
    log.write(3)
    for _ in range(3):
        reader.read()
    assert reader.numbers == list(range(MANY + 3))
    assert reader.gaps == gaps


def test_whole_files_that_begin_as_the_lost_one_did_are_read(log: LogFile) -> None:
    """Builds whose lines have no times begin each log with the same KiB."""
    banner = b"loading model\n" * 100
    log.write_bytes(banner)
    log.write(100)
    reader = Reader(log.path)
    reader.read()
    log.rename().unlink()
    for lines in (200, 5):
        log.reopen()
        log.write_bytes(banner)
        log.write(lines)
        log.pack(log.rename())
    log.reopen()
    log.write()
    reader.restart()
    for _ in range(3):
        reader.read()
    assert [number for number in reader.numbers if number >= 0] == list(range(306))
    assert reader.gaps == 1


@pytest.mark.parametrize("damaged", [1, 2, 4])
def test_damaged_files_in_a_row_are_one_gap_and_what_follows_is_read(log: LogFile, damaged: int) -> None:
    log.write(10)
    reader = Reader(log.path)
    reader.read()
    for _ in range(damaged):
        log.rename()
        log.reopen()
        log.write(10)
        cut(log.pack(log.rename()), RUNT)
        log.reopen()
    log.write(10)
    reader.restart()
    for _ in range(5):
        assert reader.read().failure is None
    assert (reader.numbers, reader.gaps) == ([*range(10), *range(10 + 10 * damaged, 20 + 10 * damaged)], 1)


def test_damaged_files_before_the_first_that_can_be_read_are_one_gap(log: LogFile) -> None:
    for _ in range(2):
        log.write(10)
        cut(log.pack(log.rename()), RUNT)
        log.reopen()
    log.write(10)
    reader = Reader(log.path)
    reader.tail.open(seek="head")
    for _ in range(5):
        assert reader.read().failure is None
    assert (reader.numbers, reader.gaps) == (list(range(20, 30)), 1)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("last", ["like the first", "behind a hole"])
def test_damaged_files_behind_which_nothing_is_yet_are_one_gap_however_often_they_are_looked_at(
    log: LogFile, last: str
) -> None:
    log.write(10)
    reader = Reader(log.path)
    reader.read()
    log.rename()
    log.reopen()
    log.write(10)
    cut(log.pack(log.rename()), RUNT)
    log.reopen()
    if last == "behind a hole":
        log.write_bytes(bytes(1 << 20))
    log.write(10)
    packed = log.pack(log.rename())
    if last == "behind a hole":
        halve(packed)
    else:
        cut(packed, RUNT)
    log.reopen()
    reader.restart()
    for _ in range(5):
        assert "cannot be unpacked" in str(reader.read().failure)
    log.write(10)
    for _ in range(5):
        assert reader.read().failure is None
    assert (reader.numbers, reader.gaps) == ([*range(10), *range(30, 40)], 1)


def test_what_follows_a_line_that_is_too_long_and_damaged_begins_with_a_whole_line(log: LogFile) -> None:
    log.write(3)
    reader = Reader(log.path)
    reader.read()
    log.rename()
    log.reopen()
    log.write_bytes(random.Random(1).randbytes(3 << 20).replace(b"\n", b" "))
    halve(log.pack(log.rename()))
    log.reopen()
    log.write(3)
    reader.restart()
    for _ in range(3):
        reader.read()
    assert [len(line) for line in reader.lines if len(line) > 10] == [MAX_LINE]
    assert ([number for number in reader.numbers if number >= 0], reader.gaps) == (list(range(6)), 1)
