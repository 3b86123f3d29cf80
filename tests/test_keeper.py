"""The daemon's side of the store, where the store cannot be opened."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from kvexporter.keeper import Keeper
from kvexporter.server import Server
from kvexporter.store import Batch, Store
from tests.support.paths import wait_for


def opened(keeper: Keeper) -> Keeper:
    keeper.start()

    def settled() -> bool:
        keeper.step()
        return keeper.settled

    wait_for("the store to be opened or given up", settled)
    return keeper


def test_a_folder_that_may_not_be_entered_is_counted_and_said_once_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As nobody with HOME=/root. Root itself may enter any folder, so the system's answer is given here."""

    def refuse(path: Path, **_: object) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    keeper = opened(Keeper(tmp_path / "closed" / "k.db"))
    keeper.close()
    assert (keeper.failures, keeper.fatal) == (1, None)
    assert keeper.problem is not None
    assert "Permission denied: choose another place with --storage.path" in keeper.problem
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "nothing is kept over a restart" in errors[0]


def test_journals_of_an_earlier_exporter_are_known_with_their_servers_until_they_are_old(tmp_path: Path) -> None:
    now = time.time()
    store = Store(tmp_path / "k.db", wall_clock=now)
    store.commit(Batch("journal", "c1", 0, msgspec.json.encode({"llama": Server("llama").memory()})))
    store.commit(Batch("unreadable", "c1", 0, b"{"))
    store.close()
    keeper = opened(Keeper(tmp_path / "k.db"))
    keeper.close()
    assert keeper.stored(now - 10) == [("journal", ["llama"])]
    assert keeper.stored(now + 10) == []
