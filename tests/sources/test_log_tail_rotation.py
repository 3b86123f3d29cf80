"""Whatever is done to a log between two looks, each whole line is read once: an independent count is always right."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvexporter.sources.log_mark import parse_log_mark
from tests.support.log_rotation import LogFile, Reader

Step = Literal[
    "write",
    "many",
    "begin",
    "rename",
    "reopen",
    "copy",
    "pack",
    "delete",
    "read",
    "glance",
    "commit",
    "crash",
    "restart",
]


class Life:
    """A log that is written, rotated and read, and what must have been read of it in the end."""

    def __init__(self, folder: Path, *, append: bool) -> None:
        self.log = LogFile(folder / "llama.log", append=append)
        self.reader = Reader(self.log.path)
        self.begun = b""
        """What was written of a line whose end was not."""
        self.renamed = False
        """The writer still has the file that was renamed."""
        self.torn = False
        """A copy ends inside a line, and that was not committed yet: only the file's inode tells what goes on there."""
        self.write()
        self.reader.read()
        self.committed = (self.reader.tail.position(), len(self.reader.lines))

    def write(self, lines: int = 1) -> None:
        if self.begun:
            whole = b"line %d\n" % self.log.written
            self.log.write_bytes(whole[len(self.begun) :])
            self.log.written += 1
            self.begun = b""
        self.log.write(lines)

    def step(self, step: Step) -> None:
        log, reader = self.log, self.reader
        if step == "write":
            self.write()
        elif step == "many":
            self.write(40)
        elif step == "begin" and not self.begun:
            self.begun = (b"line %d\n" % log.written)[:-1]
            log.write_bytes(self.begun)
        elif step == "rename" and not self.renamed:
            log.rename()
            self.renamed = True
        elif step == "reopen" and self.renamed and not self.begun:
            log.reopen()
            self.renamed = False
        elif step == "copy" and not self.renamed and (not self.begun or self.known()):
            log.copy_truncate()
            self.torn |= bool(self.begun)
        elif step == "pack" and not self.torn:
            plain = [path for path in log.numbered() if path.suffix != ".gz"]
            for path in plain[1:] if self.renamed else plain:
                log.pack(path)
        elif step == "delete" and not self.renamed and not self.begun:
            self.delete()
        elif step == "read":
            reader.read()
        elif step == "glance":
            reader.read(budget=0.0)
        elif step == "commit":
            if self.torn:
                self.read_all()
                self.torn = bool(self.begun)
            self.committed = (reader.tail.position(), len(reader.lines))
        elif step == "restart":
            reader.restart()
        elif step == "crash":
            position, count = self.committed
            reader.tail.close()
            again = Reader(log.path, position)
            again.lines, again.gaps = reader.lines[:count], reader.gaps
            self.reader = again

    def known(self) -> bool:
        """What was committed was read in the live file: a copy of it will be known for a copy."""
        return parse_log_mark(str(self.committed[0])).inode == self.log.path.stat().st_ino

    def delete(self) -> None:
        """What is deleted can only be read by who has it open already, and never again after that."""
        self.write()  # an empty file is not opened
        self.read_all()
        self.log.path.unlink()
        self.write(2)
        self.log.reopen()
        self.write()
        self.read_all()
        self.step("commit")

    def read_all(self) -> None:
        for _ in range(1000):
            result = self.reader.read()
            assert result.failure is None or "there is no file" in result.failure
            if result.complete and not result.read:
                return
        raise AssertionError("reading does not come to an end")

    def end(self) -> None:
        if self.begun:
            self.write()
        if self.renamed:
            self.log.reopen()
        self.write()
        self.read_all()
        assert self.reader.numbers == list(range(self.log.written))
        assert self.reader.gaps == 0
        self.reader.tail.close()
        self.log.close()


def live(steps: Sequence[Step], *, append: bool = True) -> None:
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder), append=append)
        for step in steps:
            life.step(step)
        life.end()


_ALL: tuple[Step, ...] = get_args(Step)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(_ALL), max_size=40), st.booleans())
def test_every_line_is_read_once_in_its_order_whatever_happens_in_between(steps: list[Step], append: bool) -> None:
    live(steps, append=append)


@pytest.mark.parametrize("append", [True, False], ids=["appended", "written at its place"])
@pytest.mark.parametrize(
    "steps",
    [
        ("write", "rename", "write", "reopen", "write", "read"),
        ("write", "rename", "read", "write", "read", "reopen", "read", "write"),
        ("write", "copy", "write", "read"),
        ("write", "copy", "read", "write", "copy", "many", "pack", "read"),
        ("begin", "copy", "write", "read"),
        ("begin", "read", "copy", "read", "restart", "write", "read"),
        ("write", "delete", "write", "delete", "read"),
        ("many", "rename", "reopen", "many", "pack", "rename", "reopen", "many", "crash", "read"),
        ("many", "copy", "many", "copy", "many", "pack", "copy", "many", "crash", "read"),
        ("write", "rename", "reopen", "write", "rename", "reopen", "write", "rename", "reopen", "write", "read"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_each_way_of_rotation_loses_nothing(steps: Sequence[Step], append: bool) -> None:
    live(steps, append=append)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogFile]:
    one = LogFile(tmp_path / "llama.log")
    yield one
    one.close()


@pytest.mark.parametrize("left", [None, "llama.log.bak", "saved"], ids=["deleted", "bak", "elsewhere"])
def test_a_copy_in_the_files_place_is_read_on_where_the_file_was_left(log: LogFile, left: str | None) -> None:
    log.write(100)
    reader = Reader(log.path)
    reader.read()
    copy = log.path.with_name("copy")
    shutil.copy(log.path, copy)  # as `sed -i` does, or an operator with cp and mv
    if left is not None:
        log.path.rename(log.path.with_name(left))
    copy.rename(log.path)
    reader.read()
    log.reopen()
    log.write(3)
    reader.read()
    log.write(2)
    reader.read()
    assert reader.numbers == list(range(log.written))
    assert reader.gaps == 0


def test_a_new_file_that_begins_as_the_renamed_one_did_is_read_from_its_beginning(log: LogFile) -> None:
    same = b"a server that fails at its start\n" * 3  # in builds whose lines have no times
    log.write_bytes(same)
    reader = Reader(log.path)
    reader.read()
    log.rename()
    log.reopen()
    log.write_bytes(same[:33])
    reader.read(1.0)
    log.write_bytes(same[33:] + b"line 0\n")
    assert reader.read(1.0).complete
    assert reader.numbers == [-1] * 6 + [0]


def test_a_copy_whose_original_is_still_written_to_is_not_read_again(log: LogFile) -> None:
    log.write(100)
    reader = Reader(log.path)
    reader.read()
    copy = log.path.with_name("copy")
    shutil.copy(log.path, copy)
    copy.rename(log.path)
    log.write(5)
    reader.read()
    log.write(5)
    reader.read()
    assert reader.numbers == list(range(log.written))


def test_a_file_of_nuls_alone_does_not_hold_up_what_follows(log: LogFile) -> None:
    log.write_bytes(bytes(10_000))  # what a power failure can leave
    reader = Reader(log.path)
    reader.read()
    log.rename()
    log.reopen()
    log.write(3)
    assert reader.read(1.0).complete
    assert reader.numbers == [0, 1, 2]


def test_a_pipe_in_the_files_place_is_a_failure_and_not_an_empty_file(log: LogFile) -> None:
    log.write(3)
    reader = Reader(log.path)
    reader.read()
    log.rename()
    os.mkfifo(log.path)
    assert "is not a regular file" in str(reader.read().failure)
    log.path.unlink()
    log.reopen()
    log.write(3)
    assert reader.read().failure is None
    assert reader.numbers == [0, 1, 2, 3, 4, 5]
