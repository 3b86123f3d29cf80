"""What is read of one log file, what is counted as lost, and what is said while nothing can be read."""

from __future__ import annotations

import gzip
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvexporter.sources.log_lines import MAX_LINE
from tests.support.log_rotation import LogFile, Reader


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogFile]:
    file = LogFile(tmp_path / "llama.log")
    yield file
    file.close()


def test_the_first_start_reads_the_file_from_its_beginning_but_not_its_predecessors(log: LogFile) -> None:
    log.write(3)
    log.rename()
    log.reopen()
    log.write(2)
    reader = Reader(log.path)
    reader.read()
    assert (reader.numbers, reader.gaps) == ([3, 4], 0)


def test_from_the_head_the_predecessors_are_read_too_oldest_first(log: LogFile) -> None:
    for _ in range(3):
        log.write(3)
        packed = log.rename()
        log.reopen()
    log.pack(packed)
    log.write()
    reader = Reader(log.path)
    reader.tail.open(None, seek="head")
    reader.read()
    assert (reader.numbers, reader.gaps) == (list(range(10)), 0)


def test_a_line_is_read_when_its_end_is_written_and_not_before(log: LogFile) -> None:
    reader = Reader(log.path)
    log.write_bytes(b"line ")
    assert reader.read().complete
    assert reader.lines == []
    log.write_bytes(b"0\r\nline 1")
    reader.read()
    assert reader.lines == [b"line 0"]
    reader.restart()
    log.write_bytes(b"2\n")
    reader.read()
    assert reader.lines == [b"line 0", b"line 12"]


def test_a_last_line_without_an_end_is_read_when_the_next_file_has_begun(log: LogFile) -> None:
    reader = Reader(log.path)
    log.write_bytes(b"line 0\nthe last words")
    reader.read()
    log.rename()
    reader.read()
    assert reader.lines == [b"line 0"]
    log.reopen()
    log.write_bytes(b"line 1\n")
    reader.read()
    assert reader.lines == [b"line 0", b"the last words", b"line 1"]
    reader.restart()
    reader.read()
    assert len(reader.lines) == 3


def test_of_a_line_that_is_too_long_the_beginning_is_read_and_nothing_else(log: LogFile) -> None:
    reader = Reader(log.path)
    log.write_bytes(b"x" * MAX_LINE)
    for _ in range(3):
        log.write_bytes(b"x" * 100_000)
        reader.read()
        reader.restart()  # in the middle of it
    log.write_bytes(b"x\nline 1\n")
    reader.read()
    assert [len(line) for line in reader.lines] == [MAX_LINE, len(b"line 1")]
    assert reader.gaps == 0


def test_the_end_of_a_line_that_is_too_long_has_no_time_of_its_own(log: LogFile) -> None:
    reader = Reader(log.path)
    log.write_bytes(b"x" * (MAX_LINE + 1))
    reader.read()
    reader.restart()
    log.write_bytes(b"the end\n")
    assert (reader.read().newest, reader.last.read) == (None, 0)


def test_a_hole_left_by_emptying_is_no_line_however_large(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "llama.log", append=False)
    log.write_bytes(b"line 0\n" + b"y" * 300_000 + b"\n")
    reader = Reader(log.path)
    reader.read()
    log.copy_truncate()
    log.write_bytes(b"line 1\n")
    assert log.path.read_bytes().startswith(b"\0" * 300_000)
    reader.read()
    assert reader.lines[-1] == b"line 1"
    assert (len(reader.lines), reader.gaps) == (3, 0)
    log.close()


def test_what_is_emptied_without_a_copy_is_a_gap_and_reading_goes_on(
    log: LogFile, caplog: pytest.LogCaptureFixture
) -> None:
    log.write(3)
    reader = Reader(log.path)
    reader.read()
    os.truncate(log.path, 0)
    assert reader.read().failure is None
    assert reader.gaps == 0  # an empty file tells nothing yet
    log.write(2)
    reader.read()
    reader.read()
    assert (reader.numbers, reader.gaps) == ([0, 1, 2, 3, 4], 1)
    assert "it was emptied, and no copy of what it held was found" in caplog.text


@pytest.mark.parametrize("unread", [0, 2])
def test_a_writer_that_writes_on_at_its_place_shows_whether_anything_was_lost(tmp_path: Path, unread: int) -> None:
    log = LogFile(tmp_path / "llama.log", append=False)
    log.write(3)
    reader = Reader(log.path)
    reader.read()
    log.write(unread)
    os.truncate(log.path, 0)
    log.write(1)
    reader.read()
    assert reader.numbers == [0, 1, 2, 3 + unread]
    assert reader.gaps == (1 if unread else 0)
    log.close()


def test_a_server_that_empties_its_log_when_it_starts_leaves_a_gap_and_its_new_lines_are_read(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "llama.log", append=False)
    log.write(3)
    reader = Reader(log.path)
    reader.read()
    log.reopen()
    log.write(30)  # more than there was
    reader.read()
    assert (reader.numbers, reader.gaps) == (list(range(33)), 1)
    log.close()


def test_a_file_that_is_not_found_again_after_a_restart_is_one_gap(log: LogFile) -> None:
    log.write(3)
    reader = Reader(log.path)
    reader.read()
    log.write()
    log.rename().unlink()
    log.reopen()
    log.write(2)
    log.rename()
    log.reopen()
    log.write(2)
    reader.restart()
    reader.read()
    reader.read()
    assert (reader.numbers, reader.gaps) == ([0, 1, 2, 4, 5, 6, 7], 1)


def test_a_packed_file_that_is_damaged_is_a_gap_and_what_follows_is_read(log: LogFile) -> None:
    log.write(3)
    reader = Reader(log.path)
    reader.read()
    log.rename()
    log.reopen()
    log.write(5000)
    packed = log.pack(log.rename())
    log.reopen()
    log.write()
    status = packed.stat()
    packed.write_bytes(packed.read_bytes()[:-500])
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
    reader.restart()
    while not reader.read().complete:
        assert reader.last.failure is None
    assert reader.gaps == 1
    assert reader.numbers[:3] == [0, 1, 2]
    assert reader.numbers[-1] == log.written - 1
    assert len(set(reader.numbers)) == len(reader.numbers)


def test_a_file_that_is_just_being_packed_is_read_plain(log: LogFile) -> None:
    log.write(3)
    reader = Reader(log.path)
    reader.read()
    log.write(2)
    plain = log.rename()
    plain.with_name(plain.name + ".gz").write_bytes(gzip.compress(plain.read_bytes())[:20])
    log.reopen()
    log.write()
    reader.restart()
    reader.read()
    assert (reader.numbers, reader.gaps) == (list(range(6)), 0)


def test_a_log_of_another_server_in_the_same_folder_is_never_read(log: LogFile) -> None:
    others = [log.path.with_name(name) for name in ("llama-2.log", "llama.log.swp", "llama2.log", "llama-b.log")]
    log.write(3)
    reader = Reader(log.path)
    reader.read()
    for other in others:
        other.write_bytes(b"line 99\n")
    log.rename()
    log.reopen()
    log.write(2)
    reader.read()
    reader.restart()
    reader.read()
    assert (reader.numbers, reader.gaps) == (list(range(5)), 0)


def test_a_file_that_comes_later_is_read_from_its_beginning_and_its_absence_is_said(tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet" / "llama.log"
    reader = Reader(path)
    assert reader.read().failure == (
        f"there is no file {path} (nor a folder {path.parent}): it is read as soon as it is there"
    )
    path.parent.mkdir(parents=True)
    assert reader.read().failure == f"there is no file {path}: it is read as soon as it is there"
    path.write_bytes(b"line 0\n")
    assert reader.read().failure is None
    assert (reader.numbers, reader.gaps) == ([0], 0)


def test_what_is_no_file_is_refused_in_words_and_nothing_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in str(Reader(tmp_path / "pipe").read().failure)
    assert "is not a regular file" in str(Reader(tmp_path).read().failure)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything."""
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_file_that_may_not_be_read_is_said_and_read_once_it_may() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "llama.log"
        path.write_bytes(b"line 0\nline 1\n")
        path.chmod(0o600)
        path.parent.chmod(0o755)
        reader = Reader(path)
        with as_nobody():
            assert reader.read().failure == (
                f"no permission to read {path}: give the exporter's user its group (SupplementaryGroups=), or setfacl"
            )
        path.parent.chmod(0o700)
        with as_nobody():
            assert f"let the exporter's user enter {folder}" in str(reader.read().failure)
        path.parent.chmod(0o755)
        path.chmod(0o644)
        with as_nobody():
            assert reader.read().failure is None
        assert (reader.numbers, reader.gaps) == ([0, 1], 0)
        reader.tail.close()


def test_a_file_that_was_renamed_is_read_on_while_its_writer_has_it(log: LogFile) -> None:
    reader = Reader(log.path)
    log.write()
    reader.read()
    log.rename()
    log.path.touch()  # as logrotate's `create` does
    for _ in range(3):
        log.write()
        reader.read()
    assert reader.numbers == [0, 1, 2, 3]
    log.reopen()
    log.write()
    reader.read()
    assert (reader.numbers, reader.gaps) == ([0, 1, 2, 3, 4], 0)


def test_lines_that_tell_no_time_have_that_of_the_files_last_writing_and_never_one_of_the_future(log: LogFile) -> None:
    reader = Reader(log.path)
    log.write()
    os.utime(log.path, (1_700_000_000, 1_700_000_000))
    reader.read()
    log.write()
    os.utime(log.path, (time.time() + 1000, time.time() + 1000))
    before = time.time()
    reader.read()
    assert reader.entries[0].at == 1_700_000_000
    assert before <= reader.entries[1].at <= time.time()


def test_lines_of_a_containers_engine_have_their_own_times_and_its_pieces_are_told(log: LogFile) -> None:
    reader = Reader(log.path)
    log.write_bytes(b'{"log":"line 0\\n","stream":"stderr","time":"2026-11-30T10:00:00.5Z"}\n')
    log.write_bytes(b'{"log":"line 1 begins","stream":"stderr","time":"2026-11-30T10:00:01Z"}\n')
    reader.read()
    reader.restart()
    log.write_bytes(b'{"log":" and ends\\n","stream":"stderr","time":"2026-11-30T10:00:01Z"}\n')
    log.write_bytes(b"2026-11-30T11:00:02+01:00 stderr F line 2\n")
    reader.read()
    assert reader.lines == [b"line 0", b"line 1 begins", b" and ends", b"line 2"]
    # 1796032800 is 2026-11-30T10:00:00Z by `date -u -d … +%s`.
    assert [entry.at for entry in reader.entries] == [1796032800.5, 1796032801.0, 1796032801.0, 1796032802.0]
    assert [entry.continued for entry in reader.entries] == [False, False, True, False]


def test_a_position_that_cannot_be_used_starts_anew(log: LogFile, caplog: pytest.LogCaptureFixture) -> None:
    log.write(2)
    reader = Reader(log.path, position="s=1;i=2")
    reader.read()
    assert reader.numbers == [0, 1]
    assert "the stored position is unusable" in caplog.text


def test_nothing_is_left_open(log: LogFile) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    reader = Reader(log.path)
    for _ in range(5):
        log.write(3)
        log.pack(log.rename())
        log.reopen()
        log.write()
        log.copy_truncate()
        reader.read()
        reader.restart()
    reader.tail.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("filling", [b"\0", b"x"], ids=["NULs", "no line end"])
def test_a_packed_gibibyte_without_a_line_is_passed_over_in_small_steps(tmp_path: Path, filling: bytes) -> None:
    mebibyte = gzip.compress(filling * (1 << 20))
    (tmp_path / "llama.log.1.gz").write_bytes(mebibyte * 1024)  # 1 MiB on the disk
    log = LogFile(tmp_path / "llama.log")
    log.write(2)
    reader = Reader(log.path)
    reader.tail.open(None, seek="head")
    steps = 0
    while not reader.read(budget=0.0).complete:
        assert reader.last.failure is None
        steps += 1
    assert steps >= 1024, "no step unpacked more than a mebibyte"
    assert reader.lines[-2:] == [b"line 0", b"line 1"]
    assert [len(line) for line in reader.lines[:-2]] == ([] if filling == b"\0" else [MAX_LINE])
    assert reader.gaps == 0
    log.close()


def test_lines_behind_a_packed_hole_of_many_steps_are_read(tmp_path: Path) -> None:
    hole = gzip.compress(b"\0" * (1 << 20)) * 5
    (tmp_path / "llama.log.1.gz").write_bytes(hole + gzip.compress(b"\0line 0\nline 1\n"))
    log = LogFile(tmp_path / "llama.log")
    log.write_bytes(b"line 2\n")
    reader = Reader(log.path)
    reader.tail.open(None, seek="head")
    while not reader.lines:
        reader.read(budget=0.0)
    reader.restart()
    reader.read()
    assert (reader.numbers, reader.gaps) == ([0, 1, 2], 0)
    log.close()


FILLING = (b"x" * 8191 + b"\n") * 3072
"""24 MiB."""


def far_into_a_packed_file(tmp_path: Path, read: int) -> tuple[LogFile, Reader]:
    """A log of which so many bytes had been read when it was rotated and packed, and its reader stopped."""
    log = LogFile(tmp_path / "llama.log")
    log.write_bytes(FILLING)
    log.write(2)
    reader = Reader(log.path)
    while sum(len(line) + 1 for line in reader.lines) < read:
        reader.read(budget=0.0)
    reader.tail.close()
    log.pack(log.rename())
    log.reopen()
    log.write(2)
    return log, reader


def steps_to(reader: Reader, lines: int) -> int:
    """How many small steps it takes to read so many lines more."""
    before, steps = len(reader.lines), 0
    while len(reader.lines) < before + lines:
        assert reader.read(budget=0.0).failure is None
        assert reader.last.more, "others get their turn, and then it goes on at once"
        steps += 1
    return steps


@pytest.mark.parametrize("read", [len(FILLING) // 2, len(FILLING) + 7], ids=["in its middle", "at its end"])
def test_a_place_far_into_a_packed_file_is_reached_in_small_steps(tmp_path: Path, read: int) -> None:
    log, reader = far_into_a_packed_file(tmp_path, read)
    before = len(list(Path("/proc/self/fd").iterdir()))
    reader.restart()
    assert steps_to(reader, 1) >= read // (5 << 20), "no step unpacked more than 5 MiB"
    reader.read()
    assert (len(reader.lines), reader.numbers[-4:], reader.gaps) == (3072 + 4, [0, 1, 2, 3], 0)
    reader.tail.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    log.close()


def test_a_place_far_into_a_packed_file_is_found_beside_newer_ones_that_begin_like_it(tmp_path: Path) -> None:
    """One is damaged after a long while, one goes on otherwise: neither is unpacked once more at each step."""
    log, reader = far_into_a_packed_file(tmp_path, len(FILLING) + 7)
    whole = (tmp_path / "llama.log.1.gz").rename(tmp_path / "llama.log.3.gz").read_bytes()
    (tmp_path / "llama.log.2.gz").write_bytes(gzip.compress(b"line 7\n" + FILLING))
    (tmp_path / "llama.log.1.gz").write_bytes(gzip.compress(FILLING + b"line 8\nline 9\n")[: len(whole) * 3 // 4])
    (tmp_path / "llama.log-20261130.gz").write_bytes(gzip.compress(FILLING + b"line 8\nline 9\n"))
    reader.restart()
    before = len(reader.lines)
    assert steps_to(reader, 1) < 40
    assert (reader.lines[before], reader.gaps) == (b"line 7", 0)
    reader.tail.close()
    log.close()


def test_what_was_begun_of_a_packed_file_is_closed(tmp_path: Path) -> None:
    log, reader = far_into_a_packed_file(tmp_path, len(FILLING) + 7)
    before = len(list(Path("/proc/self/fd").iterdir()))
    reader.restart()
    reader.read(budget=0.0)
    reader.tail.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    log.close()
