"""A configuration is read at the start however long its disk takes, and whoever waits learns for which file."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kvexporter import reading_at_start
from kvexporter.config import ConfigError, load_config
from kvexporter.reading_at_start import Ended, NotReadError, read_at_start, reading
from tests.support.dead_disk import unanswering

HANGS = "its disk or network does not answer: waiting for it; see to its mount, or name a file that is elsewhere"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_at_start, "WORD_SECONDS", 0.1)
    monkeypatch.setattr(reading_at_start, "_LOOK_SECONDS", 0.02)


@pytest.fixture
def handler_stays() -> Iterator[None]:
    ending = signal.SIGTERM, signal.SIGINT
    before = [signal.getsignal(number) for number in ending]
    yield
    assert [signal.getsignal(number) for number in ending] == before


def test_what_is_read_is_given_and_what_is_raised_is_raised(tmp_path: Path, handler_stays: None) -> None:
    said: list[str] = []
    file = tmp_path / "kvexporter.yml"
    file.write_text("poll_interval: 2s\n")
    assert read_at_start(partial(load_config, file), said.append).poll_interval == 2.0
    file.write_text("poll_interval: never\n")
    with pytest.raises(ConfigError, match=r"kvexporter\.yml:1: poll_interval: expected"):
        read_at_start(partial(load_config, file), said.append)
    assert said == []


def test_each_file_that_is_waited_for_is_said_once_while_it_is(tmp_path: Path, handler_stays: None) -> None:
    said: list[str] = []
    files = tmp_path / "a", tmp_path / "b"
    answered = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        if len(said) == len(files):
            answered.set()
        else:
            first.set()

    first = threading.Event()

    def read() -> int:
        for file, answers in zip(files, (first, answered), strict=True):
            with reading(file):
                assert answers.wait(30)
        return 7

    assert read_at_start(read, say) == 7
    assert said == [f"{file}: {HANGS}" for file in files]


def test_work_that_takes_long_without_a_file_is_no_disk_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    done = threading.Event()
    threading.Timer(0.5, done.set).start()
    assert read_at_start(lambda: done.wait(30), said.append)
    assert said == []


def test_a_deadline_ends_the_wait_with_the_files_name(tmp_path: Path, handler_stays: None) -> None:
    file = tmp_path / "kvexporter.yml"
    with (
        unanswering(file),
        pytest.raises(NotReadError, match=rf"{file}: its disk or network does not answer: not read within 0\.3 s"),
    ):
        read_at_start(partial(load_config, file), lambda text: None, deadline=0.3)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait(tmp_path: Path, handler_stays: None, number: signal.Signals) -> None:
    file = tmp_path / "kvexporter.yml"
    with unanswering(file), pytest.raises(Ended) as ended:
        read_at_start(partial(load_config, file), lambda text: os.kill(os.getpid(), number))
    assert ended.value.code == 128 + number


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    file = tmp_path / "kvexporter.yml"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with unanswering(file), pytest.raises(NotReadError):
            read_at_start(partial(load_config, file), lambda text: os.kill(os.getpid(), signal.SIGINT), deadline=1.0)
    finally:
        signal.signal(signal.SIGINT, before)
