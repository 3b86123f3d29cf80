"""kvexporter's own log."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from pathlib import Path

import pytest

from kvexporter.logs import LineFormatter, LogFormat, set_up_logging, under_journald


def record(message: str, level: int = logging.WARNING, name: str = "kvexporter.poll") -> logging.LogRecord:
    made = logging.LogRecord(name, level, "", 0, message, None, None)
    made.created = 1790000000.25
    return made


def test_logfmt_has_time_level_part_and_message() -> None:
    line = LineFormatter("logfmt", journald=False).format(record("main: no answer"))
    assert line == 'ts=2026-09-21T14:13:20.250Z level=warn part=poll msg="main: no answer"'


def test_under_journald_there_is_a_priority_instead_of_a_time() -> None:
    formatter = LineFormatter("logfmt", journald=True)
    assert formatter.format(record("x")) == "<4>level=warn part=poll msg=x"
    assert formatter.format(record("x", logging.ERROR)).startswith("<3>level=error ")
    assert formatter.format(record("x", logging.INFO)).startswith("<6>level=info ")
    assert formatter.format(record("x", logging.DEBUG)).startswith("<7>level=debug ")


def test_json_has_the_same_fields() -> None:
    line = LineFormatter("json", journald=False).format(record('a "b"'))
    assert json.loads(line) == {
        "ts": "2026-09-21T14:13:20.250Z",
        "level": "warn",
        "part": "poll",
        "msg": 'a "b"',
    }


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_a_message_is_one_line_whatever_is_in_it(form: LogFormat) -> None:
    made = record("a\nlevel=error msg=forged\r\x1b[2J\u2028")
    try:
        raise ValueError("b\nc")
    except ValueError:
        made.exc_info = sys.exc_info()
    line = LineFormatter(form, journald=False).format(made)
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line


def test_only_what_is_at_the_level_is_written_and_libraries_only_warn() -> None:
    stream = io.StringIO()
    set_up_logging("info", "logfmt", stream)
    logging.getLogger("kvexporter.x").info("ours")
    logging.getLogger("kvexporter.x").debug("too fine")
    logging.getLogger("httpx").info("theirs")
    logging.getLogger("httpx").warning("their warning")
    lines = stream.getvalue().splitlines()
    assert [line.split("msg=")[1] for line in lines] == ["ours", '"their warning"']


def test_setting_up_twice_writes_each_line_once() -> None:
    set_up_logging("info", "logfmt", io.StringIO())
    stream = io.StringIO()
    set_up_logging("warn", "logfmt", stream)
    logging.getLogger("kvexporter").warning("once")
    logging.getLogger("kvexporter").info("not at this level")
    assert stream.getvalue().count("\n") == 1


def test_journald_is_known_by_the_stream_that_systemd_names(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        status = os.fstat(stream.fileno())
        assert under_journald(stream, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
        assert not under_journald(stream, {"JOURNAL_STREAM": "1:2"})
        assert not under_journald(stream, {})
    assert not under_journald(io.StringIO(), {"JOURNAL_STREAM": "1:2"})
