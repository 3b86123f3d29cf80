"""Lines that come over and over are recognised by memory: they say what they said, and no client's text is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvexporter.llama import log
from kvexporter.llama.events import AllSlotsIdle, HttpRequest, LogLine
from kvexporter.llama.log import CONTEXT_ERROR, parse_line, parse_lines
from tests.llama.test_log_properties import SAMPLES
from tests.support.paths import RECORDINGS

LOGS = sorted(RECORDINGS.glob("**/server.log"))
PROMPT = b"What is the capital of France? " * 4


@pytest.fixture(autouse=True)
def forgetful() -> None:
    log._seen.clear()


def alone(raws: list[bytes]) -> list[LogLine | None]:
    """Each line as if it were the first one ever read."""
    lines = []
    for raw in raws:
        log._seen.clear()
        lines.append(parse_line(raw))
    return lines


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_lines_say_the_same_together_as_alone_and_the_second_time_as_the_first(path: Path) -> None:
    raws = path.read_bytes().splitlines()
    expected = alone(raws)
    assert parse_lines(raws) == expected
    assert parse_lines(raws) == expected
    assert [parse_line(raw) for raw in raws] == expected


@given(st.lists(st.one_of(st.sampled_from([*SAMPLES, CONTEXT_ERROR, b"", b"\0", b"x" * 9000]), st.binary(max_size=30))))
def test_whatever_comes_together_says_the_same_as_alone(raws: list[bytes]) -> None:
    expected = alone(raws)
    assert parse_lines(raws) == expected
    assert parse_lines(raws + raws) == expected + expected


def test_a_line_that_names_the_error_counts_each_time_it_comes() -> None:
    line = b"srv  update_slots: Context size has been exceeded. off = 0, n_batch = 1, ret = 1"
    other = b"proxy: upstream said: Context size has been exceeded"
    assert [told is not None and told.mentions_context_error for told in parse_lines([line, other] * 3)] == [True] * 6


def test_no_line_is_kept_and_of_requests_only_those_for_paths_of_the_servers_own() -> None:
    told = [
        b"srv  log_server_r: request: GET /slots?key=my-secret 127.0.0.1 200",
        b"srv  log_server_r: request: GET /tokenize/my-secret 127.0.0.1 404",
        b'{"timestamp":1,"level":"INFO","msg":"request","status":200,"method":"GET","path":"/completion","params":"my-secret"}',
        b'{"level":"INFO","msg":"all slots are idle","note":"my-secret"}',
        b"my-secret question to the model",
        *SAMPLES,
    ]
    parse_lines(told)
    parse_lines(told)
    assert len(log._seen) >= 4
    assert all(type(key) is int for key in log._seen)
    assert "my-secret" not in repr(log._seen)
    assert {type(line.event) for line in log._seen.values() if line is not None} <= {HttpRequest, AllSlotsIdle}


def test_what_is_kept_is_bounded() -> None:
    for number in range(5000):
        parse_lines([b"srv  log_server_r: request: GET /slots 127.0.0.%d 200" % number, b"says nothing %d" % number])
    assert 0 < len(log._seen) <= 1024
