"""The daemon's side of the store: what is given back after a restart, and what a disk that fails costs."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvexporter import keeper as keeper_module
from kvexporter import store_opening
from kvexporter.keeper import Keeper
from kvexporter.llama.log import parse_line
from kvexporter.server import Server
from kvexporter.store import Store, StoredStart
from kvexporter.store_file import StoreError
from kvexporter.store_reading import read_starts
from tests.support.paths import RECORDINGS, wait_for

LINES = (RECORDINGS / "b11434" / "unified_overflow" / "server.log").read_bytes().splitlines()


def server(name: str = "s", runs: int = 1) -> Server:
    made = Server(name)
    for _ in range(runs):
        for line in LINES:
            if (parsed := parse_line(line)) is not None:
                made.line(parsed, 1000.0)
    return made


def opened(path: Path) -> Keeper:
    keeper = Keeper(path)
    keeper.start()
    settle(keeper)
    return keeper


def settle(keeper: Keeper) -> None:
    def settled() -> bool:
        keeper.step()
        return keeper.settled

    wait_for("the store to be opened", settled, interval=0.005)


def committed(keeper: Keeper, key: str, position: str) -> None:
    """Wait until that position is what would be recalled."""

    def there() -> bool:
        keeper.step()
        recalled = keeper.recall(key)
        return recalled is not None and recalled[0].position == position

    wait_for("the commit", there, interval=0.005)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kvexporter.db"


def test_what_was_committed_last_is_recalled_by_the_same_process_too(path: Path) -> None:
    keeper = opened(path)
    assert keeper.recall("journal") is None
    assert keeper.commit("journal", "p1", 0, [server()], {})
    committed(keeper, "journal", "p1")
    assert keeper.commit("journal", "p2", 3, [server(runs=2)], {}, urgent=True)
    committed(keeper, "journal", "p2")
    recalled = keeper.recall("journal")
    keeper.close()

    assert recalled is not None
    assert recalled[0].gaps == 3
    assert recalled[1]["s"].ledger.counters.incidents["pool"] == 2


def test_servers_that_are_not_watched_now_are_kept_through_every_commit(path: Path) -> None:
    keeper = opened(path)
    keeper.commit("journal", "p1", 0, [server("router"), server("child", runs=3)], {})
    committed(keeper, "journal", "p1")
    keeper.close()

    for number in (2, 3):
        keeper = opened(path)
        recalled = keeper.recall("journal")
        assert recalled is not None
        memories = recalled[1]
        router = Server("router")
        router.remember(memories.pop("router"))
        keeper.commit("journal", f"p{number}", 0, [router], memories)
        committed(keeper, "journal", f"p{number}")
        keeper.close()
        assert memories["child"].ledger.counters.incidents["pool"] == 3


def test_an_incident_is_written_at_once_even_when_the_position_is_the_same(path: Path) -> None:
    keeper = opened(path)
    assert keeper.commit("journal", "p1", 0, [server()], {})
    committed(keeper, "journal", "p1")
    assert not keeper.commit("journal", "p1", 0, [server()], {})
    assert keeper.commit("journal", "p1", 0, [server(runs=2)], {}, urgent=True)
    keeper.close()
    with sqlite3.connect(path) as database:
        numbers = [number for (number,) in database.execute("SELECT number FROM incident WHERE server = 's'")]
    database.close()
    assert numbers == [1, 2]


def test_a_store_that_breaks_while_it_is_open_is_set_aside_and_written_anew(path: Path) -> None:
    keeper = opened(path)
    keeper.commit("journal", "p1", 0, [server(runs=200)], {})
    committed(keeper, "journal", "p1")
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xee" * (len(data) - 4096)
    path.write_bytes(bytes(data))

    def written() -> bool:
        keeper.step()
        keeper.commit("journal", "p2", 0, [server(runs=200)], {}, urgent=True)
        recalled = keeper.recall("journal")
        return recalled is not None and recalled[0].position == "p2"

    wait_for("the new store to be written", written, interval=0.02)
    assert keeper.failures >= 1
    assert keeper.problem is None
    keeper.close()
    assert list(path.parent.glob("kvexporter.db.corrupt-*"))
    again = opened(path)
    recalled = again.recall("journal")
    again.close()
    assert recalled is not None
    assert recalled[1]["s"].ledger.counters.incidents["pool"] == 200


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def test_what_was_counted_is_known_even_when_the_disk_is_full_at_the_start(small_disk: Path) -> None:
    path = small_disk / "kvexporter.db"
    keeper = opened(path)
    keeper.commit("journal", "p1", 0, [server()], {})
    committed(keeper, "journal", "p1")
    keeper.close()
    filler = small_disk / "filler"
    fill(filler)

    keeper = opened(path)
    recalled = keeper.recall("journal")
    assert recalled is not None
    assert recalled[0].position == "p1"
    keeper.commit("journal", "p2", 0, [server(runs=2)], {})

    def failed() -> bool:
        keeper.step()
        return keeper.problem is not None

    wait_for("the failure", failed, interval=0.005)
    filler.unlink()

    def written() -> bool:
        keeper.step()
        keeper.commit("journal", "p2", 0, [server(runs=2)], {}, urgent=True)
        recalled = keeper.recall("journal")
        return recalled is not None and recalled[0].position == "p2"

    wait_for("the store to be written", written, interval=0.02)
    assert keeper.problem is None
    keeper.close()


def test_a_process_that_was_begun_anew_for_its_store_waits_longer_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, now = threading.Event(), [0.0]

    def slow(path: Path) -> Store:
        answers.wait(60)
        return Store(path)

    monkeypatch.setenv("KVEXPORTER_BEGUN_ANEW", "1")
    monkeypatch.setattr(store_opening, "Store", slow)
    keeper = Keeper(path, lambda: now[0])
    keeper.start()
    for now[0], settled in ((61.0, False), (599.0, False), (601.0, True)):
        keeper.step()
        assert keeper.settled is settled
    answers.set()
    keeper.close()


def test_a_store_whose_disk_does_not_answer_is_told_then_given_up_and_left_as_it_is_when_it_answers_at_last(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = opened(path)
    before.commit("k", "p1", 0, [server()], {})
    committed(before, "k", "p1")
    before.keep_start(StoredStart("other", 1.0, b"before"))
    before.keep_start(StoredStart("s", 1.0, b"before"))
    before.keep_alerts(b"before")
    before.close()
    answers, now = threading.Event(), [0.0]

    def hanging(path: Path) -> Store:
        answers.wait(60)
        return Store(path)

    monkeypatch.setattr(store_opening, "Store", hanging)
    keeper = Keeper(path, lambda: now[0])
    keeper.start()
    for now[0], told, settled in ((5.0, False, False), (11.0, True, False), (59.0, True, False), (61.0, True, True)):
        keeper.step()
        assert ("is the disk hanging?" in str(keeper.problem), keeper.settled) == (told, settled)
    assert keeper.failures == 2
    assert keeper.recall("k") is None
    keeper.keep_start(StoredStart("s", 2.0, b"meanwhile"))
    answers.set()
    until_late(keeper)
    # What was counted without the store must neither go on in the middle of it, nor take the place of what it holds.
    assert not keeper.commit("k", "p2", 0, [server()], {}, urgent=True)
    keeper.keep_start(StoredStart("s", 3.0, b"meanwhile"))
    keeper.keep_alerts(b"meanwhile")
    assert (keeper.recall("k"), keeper.stored(0.0), keeper.alerts, keeper.last_start("other")) == (None, [], None, None)
    assert "used from the next start on" in str(keeper.problem)
    assert keeper.failures == 2
    with pytest.raises(StoreError, match="another kvexporter"):
        Store(path)  # no other exporter begins with it in the meantime
    keeper.close()
    monkeypatch.undo()

    again = opened(path)
    recalled = again.recall("k")
    starts, alerts = [again.last_start(name) for name in ("other", "s")], again.alerts
    again.close()
    assert recalled is not None
    assert recalled[0].position == "p1"
    assert (starts, alerts) == ([b"before", b"before"], b"before")


def test_a_late_store_that_is_let_go_can_be_used_by_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, now = threading.Event(), [0.0]

    def hanging(path: Path) -> Store:
        answers.wait(60)
        return Store(path)

    monkeypatch.setattr(store_opening, "Store", hanging)
    keeper = Keeper(path, lambda: now[0])
    keeper.start()
    now[0] = 61.0
    keeper.step()
    answers.set()
    until_late(keeper)
    keeper.let_go()

    def free() -> bool:
        try:
            Store(path).close()
        except StoreError:
            return False
        return True

    wait_for("it to be closed", free, interval=0.005)
    keeper.close()
    assert keeper.late


def until_late(keeper: Keeper) -> None:
    def late() -> bool:
        keeper.step()
        return keeper.late

    wait_for("the store to be opened", late, interval=0.005)


def test_a_store_that_cannot_be_opened_is_tried_on_after_it_was_given_up_and_its_failure_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_opening, "LATER_PAUSE", 0.02)
    (tmp_path / "taken").write_text("a file where a folder is to be")
    keeper = opened(tmp_path / "taken" / "kvexporter.db")
    assert "choose another place" in str(keeper.problem)

    def failed_thrice() -> bool:
        keeper.step()
        return keeper.failures >= 3

    wait_for("it to be tried on", failed_thrice, interval=0.005)
    assert [record.getMessage().rpartition(" and ")[2] for record in caplog.records] == [
        "nothing is kept over a restart until it can be used"
    ]
    (tmp_path / "taken").unlink()
    until_late(keeper)
    keeper.close()


def test_a_store_given_up_that_turns_out_to_be_anothers_is_not_used_and_ends_nobody_who_counts_without_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_opening, "OPEN_PAUSE", 0.02)
    other = Store(path)
    answers, now = threading.Event(), [0.0]

    def hanging(path: Path) -> Store:
        answers.wait(60)
        return Store(path)

    monkeypatch.setattr(store_opening, "Store", hanging)
    keeper = Keeper(path, lambda: now[0])
    keeper.start()
    now[0] = 61.0
    keeper.step()
    answers.set()

    def told() -> bool:
        keeper.step()
        return "another kvexporter" in str(keeper.problem)

    wait_for("it to be told", told, interval=0.005)
    assert keeper.fatal is None
    assert not keeper.late
    other.close()
    until_late(keeper)
    keeper.close()


def test_while_the_disk_hangs_only_so_much_waits_to_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "MOST_WAITING", 5)
    answers = threading.Event()
    write = Store.add_start

    def hanging(store: Store, start: StoredStart) -> None:
        answers.wait(60)
        write(store, start)

    monkeypatch.setattr(Store, "add_start", hanging)
    keeper = opened(path)
    for number in range(50):
        keeper.keep_start(StoredStart("s", float(number), b"%d" % number))
        keeper.keep_alerts(b"%d" % number)
    assert keeper._work.qsize() <= 5
    answers.set()

    def written() -> bool:
        keeper.step()
        with contextlib.suppress(StoreError):
            starts = read_starts(path).get("s", [])
            with contextlib.closing(sqlite3.connect(path)) as database:
                alerts = database.execute("SELECT detail FROM alerts").fetchone()
            return starts[-1:] == [b"49"] and alerts == (b"49",)
        return False

    wait_for("the latest ones to be written", written)
    keeper.close()
