"""The alerts that were sent go through the keeper into the store, and come back after a restart."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvexporter.keeper import Keeper
from kvexporter.store import Store


def opened(path: Path) -> Keeper:
    keeper = Keeper(path)
    keeper.start()
    until(keeper, lambda: keeper.settled)
    return keeper


def until(keeper: Keeper, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        keeper.step()
        time.sleep(0.01)


def test_they_come_back_after_a_restart(tmp_path: Path) -> None:
    keeper = opened(tmp_path / "k.db")
    assert keeper.alerts is None
    keeper.keep_alerts(b"[1]")
    keeper.keep_alerts(b"[2]")
    keeper.close()
    again = opened(tmp_path / "k.db")
    assert again.alerts == b"[2]"
    again.close()


def test_what_could_not_be_written_is_written_later_unless_something_newer_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = opened(tmp_path / "k.db")
    real, full = Store.put_alerts, True
    written: list[bytes] = []

    def put(store: Store, detail: bytes) -> None:
        if full:
            raise sqlite3.OperationalError("database or disk is full")
        real(store, detail)
        written.append(detail)

    monkeypatch.setattr(Store, "put_alerts", put)
    keeper.keep_alerts(b"[1]")
    until(keeper, lambda: keeper.failures == 1)
    keeper.keep_alerts(b"[2]")
    until(keeper, lambda: keeper.failures == 2)
    assert keeper.problem == "database or disk is full"
    full = False

    keeper.commit("journal", "c1", 0, [], {}, urgent=True)
    until(keeper, lambda: written == [b"[2]"])

    assert keeper.problem is None
    keeper.close()


def test_without_a_store_nothing_is_kept() -> None:
    keeper = Keeper(None)
    keeper.start()
    keeper.keep_alerts(b"[1]")
    assert keeper.alerts is None
    keeper.close()
