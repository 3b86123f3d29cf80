"""Starts of servers go through the keeper into the store, and come back after a restart."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from kvexporter.keeper import Keeper
from kvexporter.memory_at_ready import Memory, SettledStart
from kvexporter.starts import StartRecord, decode_start, encode_start
from kvexporter.store import Store, StoredStart
from kvexporter.store_reading import read_starts

RECORD = StartRecord(
    pid=7, started=1000.0, settled=1020.0, resident=900, anon=400, capacity=4096, options={"-c": "4096"}
)


def opened(path: Path) -> Keeper:
    keeper = Keeper(path)
    keeper.start()
    until(keeper, lambda: keeper.settled)
    return keeper


def until(keeper: Keeper, done: object) -> None:
    assert callable(done)
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline
        keeper.step()
        time.sleep(0.01)


def test_a_start_comes_back_after_a_restart(tmp_path: Path) -> None:
    keeper = opened(tmp_path / "k.db")
    assert keeper.last_start("a") is None
    keeper.keep_start(StoredStart("a", 1000.0, encode_start(RECORD)))
    assert keeper.last_start("a") == encode_start(RECORD)
    keeper.close()

    again = opened(tmp_path / "k.db")

    detail = again.last_start("a")
    assert detail is not None
    assert decode_start(detail) == RECORD
    assert RECORD.settled_start() == SettledStart(7, 1000.0, 1020.0, late=False, memory=Memory(900, 400))
    again.close()


def test_a_start_that_could_not_be_written_goes_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = opened(tmp_path / "k.db")
    real = Store.add_start

    def full(store: Store, start: StoredStart) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Store, "add_start", full)
    keeper.keep_start(StoredStart("a", 1.0, b"{}"))
    until(keeper, lambda: keeper.failures == 1)
    assert keeper.problem == "database or disk is full"
    monkeypatch.setattr(Store, "add_start", real)

    keeper.keep_start(StoredStart("b", 2.0, b"{}"))
    until(keeper, lambda: read_starts(tmp_path / "k.db").keys() == {"a", "b"})

    assert keeper.problem is None
    keeper.close()


def test_without_a_store_nothing_is_kept(tmp_path: Path) -> None:
    keeper = Keeper(None)
    keeper.start()
    keeper.keep_start(StoredStart("a", 1.0, b"{}"))
    assert keeper.last_start("a") is None
    keeper.close()


@pytest.mark.parametrize("detail", [b"", b"{}", b"[]", b'{"pid":"x"}', b"\xff"])
def test_what_was_stored_and_cannot_be_read_is_nothing(detail: bytes) -> None:
    assert decode_start(detail) is None
