from __future__ import annotations

import io
from pathlib import Path

import pytest

from kvexporter.sources.log_file import read_log_file
from kvexporter.sources.log_lines import MAX_LINE


def test_lines_come_without_their_ends_and_the_last_one_needs_none(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"one\r\ntwo\n\n\xff\xfe\nlast")
    assert list(read_log_file(path)) == [b"one", b"two", b"", b"\xff\xfe", b"last"]


@pytest.mark.parametrize("length", [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, MAX_LINE * 3])
def test_a_long_line_is_cut_and_its_rest_is_no_line(length: int) -> None:
    lines = list(read_log_file(io.BytesIO(b"x" * length + b"\nnext\n")))
    assert lines == [b"x" * min(length, MAX_LINE), b"next"]


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"piped\n")))
    assert list(read_log_file(Path("-"))) == [b"piped"]


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_log_file(tmp_path / "missing"))
