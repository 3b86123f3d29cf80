"""What can be read only once is copied, within bounds; a bomb of a few KiB fills no disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kvexporter.sources import recorded_file
from kvexporter.sources.recorded_file import open_recorded
from kvexporter.sources.recording import RecordingError

MIB = 1 << 20


@contextmanager
def piped(pipe: Path, size: int) -> Iterator[Callable[[], int]]:
    """So many bytes are written into a named pipe, as far as somebody reads them; gives how many were."""
    os.mkfifo(pipe)
    written = 0

    def write() -> None:
        nonlocal written
        with suppress(BrokenPipeError), pipe.open("wb", buffering=0) as sink:
            while written < size:
                written += sink.write(b"x" * 65_535 + b"\n")

    writer = threading.Thread(target=write)
    writer.start()
    yield lambda: written
    writer.join(30)
    assert not writer.is_alive()


def test_a_pipe_is_copied_and_can_be_read_twice(tmp_path: Path) -> None:
    with piped(tmp_path / "pipe", 3 * MIB) as written:
        with open_recorded(tmp_path / "pipe") as stream:
            first = stream.read()
            stream.seek(0)
            assert stream.read() == first
        assert len(first) == written() == 3 * MIB


def test_more_than_is_copied_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_file, "MOST_COPIED", 2 * MIB)
    with piped(tmp_path / "pipe", 1 << 40) as written:
        with pytest.raises(RecordingError) as refused, open_recorded(tmp_path / "pipe"):
            pytest.fail("it was opened")
        assert written() < 5 * MIB
    assert str(refused.value) == (
        f"{tmp_path / 'pipe'} is read twice, so it is copied first, and it is more than 2 MiB: "
        "write it into a file and give that one's name, or give a part of it"
    )


def test_no_more_than_half_of_the_free_space_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(recorded_file, "_free_bytes", lambda file: 4 * MIB)
    with piped(tmp_path / "pipe", 1 << 40) as written:
        with pytest.raises(RecordingError, match=f"half of what is free in {tmp_path} "):
            open_recorded(tmp_path / "pipe").__enter__()
        assert written() < 5 * MIB
