"""A place in a log file survives as text, and knows its file again by its content."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvexporter.sources.log_content import LogContent
from kvexporter.sources.log_mark import LogMark, parse_log_mark


@given(st.lists(st.binary(min_size=1, max_size=700), min_size=1, max_size=8))
def test_however_a_file_was_read_the_mark_is_the_same_and_survives_as_text(chunks: list[bytes]) -> None:
    whole = LogMark(1, 2).after(b"".join(chunks), 5)
    mark, data = LogMark(1, 2), b""
    for chunk in chunks:
        data += chunk
        before = data[len(data) - len(chunk) - mark.known : len(data) - len(chunk)]
        assert mark.continues(before + chunk)
        mark = mark.after(before + chunk, 5)
    assert mark == whole
    assert parse_log_mark(str(mark)) == mark


def test_a_file_holds_what_was_read_of_it_and_no_other_does(tmp_path: Path) -> None:
    text = b"".join(b"line %d\n" % n for n in range(500))
    path = tmp_path / "a"
    path.write_bytes(text)
    with LogContent(str(path)) as content:
        mark = LogMark(*content.identity).after(text[:3000], 1)
        assert content.holds(mark)
    for other in (text[:2999], text.replace(b"line 0\n", b"line 9\n"), text[:2900] + b"x" * 200, b""):
        path.write_bytes(other)
        with LogContent(str(path)) as content:
            assert not content.holds(mark)
    path.write_bytes(text + b"more")
    with LogContent(str(path)) as content:
        assert content.holds(mark)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s=00000000000000000000000000000001;i=1 1 0",
        "{}",
        "[1]",
        '{"device":1,"inode":2,"offset":-1}',
        '{"device":1,"inode":2,"offset":10}',
        '{"device":1,"inode":2,"offset":10,"head":10,"head_hash":"../../etc/passwd","tail":10}',
        '{"device":1,"inode":2,"start":9,"offset":3}',
        '{"device":"x","inode":2}',
    ],
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a position in a log file"):
        parse_log_mark(text)


def test_no_text_of_the_log_is_kept_in_a_mark() -> None:
    assert "secret" not in str(LogMark(1, 2).after(b"a secret prompt\n", 5))
