"""The store: whole batches or none, refusals that say what to do, and nothing thrown away."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kvexporter.store import Batch, Store, StoredFeed, StoredStart
from kvexporter.store_file import StoreError
from kvexporter.store_limits import KEPT_INCIDENTS, KEPT_REQUESTS, KEPT_SECONDS
from kvexporter.store_reading import read_gaps, read_starts


def batch(position: str = "c1", **others: object) -> Batch:
    made = Batch("journal", position, 0, b"{}")
    for name, value in others.items():
        setattr(made, name, value)
    return made


def test_what_was_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "k.db")
    store.commit(batch(gaps=2, incidents=[("s", 1, 5.0, b"{}")], requests=[("s", 1, 5.0, 700), ("s", 2, 6.0, 300)]))
    store.close()

    again = Store(tmp_path / "k.db", wall_clock=100.0)

    assert again.feeds() == {"journal": StoredFeed("c1", 2, b"{}")}
    assert again.request_sizes("s") == [700, 300]
    assert again.incidents("s") == [b"{}"]
    again.close()


def test_a_batch_that_fails_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    store = Store(tmp_path / "k.db")
    store.commit(batch("c1"))

    with pytest.raises(sqlite3.Error):
        store.commit(batch("c2", requests=[("s", 1, 5.0, None)]))

    assert store.feeds()["journal"].position == "c1"
    store.commit(batch("c3"))
    assert store.feeds()["journal"].position == "c3"
    store.close()


def test_the_same_numbers_written_twice_are_there_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "k.db")
    for position in ("c1", "c2"):
        store.commit(batch(position, requests=[("s", 1, 5.0, 700)], incidents=[("s", 1, 5.0, b"{}")]))

    assert store.request_sizes("s") == [700]
    assert len(store.incidents("s")) == 1
    store.close()


def test_only_the_latest_sizes_and_incidents_are_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "k.db")
    store.commit(batch(requests=[("s", n, 1.0, n) for n in range(1, KEPT_REQUESTS + 101)]))
    store.commit(batch(incidents=[("s", n, 1.0, b"%d" % n) for n in range(1, KEPT_INCIDENTS + 11)]))

    assert store.request_sizes("s") == list(range(101, KEPT_REQUESTS + 101))
    assert store.incidents("s")[0] == b"11"
    assert len(store.incidents("s")) == KEPT_INCIDENTS
    store.close()


def test_a_count_begun_anew_drops_the_numbers_of_the_old_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "k.db")
    store.commit(batch(requests=[("s", n, 1.0, n) for n in range(1, 101)]))
    store.commit(batch(requests=[("s", 1, 2.0, 7777)]))

    assert store.request_sizes("s") == [7777]
    store.close()


def test_what_nobody_wrote_for_long_is_forgotten(tmp_path: Path) -> None:
    store = Store(tmp_path / "k.db", wall_clock=1000.0)
    store.commit(batch(requests=[("s", 1, 1000.0, 7)]))
    store.close()

    later = Store(tmp_path / "k.db", wall_clock=1001.0 + KEPT_SECONDS)

    assert later.feeds() == {}
    assert later.request_sizes("s") == []
    later.close()


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    Store(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    before = path.read_bytes()

    with pytest.raises(StoreError, match=r"written by a newer kvexporter \(format 99, this one knows 3\)") as refused:
        Store(path)

    assert refused.value.final
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", [b"this is no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_file_that_cannot_be_read_is_set_aside_under_a_new_name(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "k.db"
    path.write_bytes(damage)

    store = Store(path)

    assert store.set_aside is not None
    assert store.set_aside.read_bytes() == damage
    assert store.feeds() == {}
    store.commit(batch())
    store.close()


def test_a_damaged_page_in_the_middle_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    store = Store(path)
    store.commit(batch(requests=[("s", n, 1.0, n) for n in range(1, 5001)]))
    store.close()
    data = bytearray(path.read_bytes())
    for offset in range(4096, len(data), 4096):
        data[offset : offset + 64] = b"\xee" * 64
    path.write_bytes(bytes(data))

    store = Store(path)

    assert store.set_aside is not None
    store.close()


def test_that_it_was_begun_anew_is_known_at_later_starts_too(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    Store(path).close()
    assert not opened_anew(path)
    path.write_bytes(b"this is no database at all" * 100)
    assert opened_anew(path)
    assert opened_anew(path)


def opened_anew(path: Path) -> bool:
    store = Store(path)
    store.close()
    return store.begun_anew


def test_gaps_are_read_beside_an_open_store(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "k.db")) as store:
        store.commit(batch(gaps=2))
        assert read_gaps(tmp_path / "k.db") == {"journal": 2}
    assert read_gaps(tmp_path / "k.db") == {"journal": 2}


def test_two_files_set_aside_in_the_same_second_are_both_kept(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    for text in (b"first" * 200, b"second" * 200):
        path.write_bytes(text)
        Store(path, wall_clock=1000.0).close()

    kept = [p.read_bytes() for p in sorted(tmp_path.glob("k.db.corrupt-*"))]
    assert sorted(kept) == [b"first" * 200, b"second" * 200]


def test_a_second_exporter_on_the_same_store_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "k.db")

    with pytest.raises(StoreError, match="another kvexporter is using this store") as refused:
        Store(tmp_path / "k.db")

    assert refused.value.final
    store.close()
    Store(tmp_path / "k.db").close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_its_files_are_their_owners_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "new"
    before = os.umask(umask)
    try:
        store = Store(folder / "k.db")
        store.commit(batch())
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()} == dict.fromkeys(
            ("k.db", "k.db.lock", "k.db-wal", "k.db-shm"), 0o600
        )
        store.close()
    finally:
        os.umask(before)


def test_a_file_of_an_earlier_version_becomes_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    Store(path).close()
    path.chmod(0o644)
    Store(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_place_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match=r"choose another place with --storage\.path") as refused:
        Store(tmp_path / "file" / "k.db")

    assert not refused.value.final


# ---- starts ---------------------------------------------------------------------------------------------------------

VERSION_1 = """
CREATE TABLE feed (key TEXT PRIMARY KEY, position TEXT NOT NULL, gaps INTEGER NOT NULL, servers BLOB NOT NULL,
  updated REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE incident (server TEXT NOT NULL, number INTEGER NOT NULL, ended REAL NOT NULL, detail BLOB NOT NULL,
  PRIMARY KEY (server, number)) WITHOUT ROWID;
CREATE TABLE request (server TEXT NOT NULL, number INTEGER NOT NULL, ended REAL NOT NULL, tokens INTEGER NOT NULL,
  PRIMARY KEY (server, number)) WITHOUT ROWID;
CREATE TABLE origin (at REAL NOT NULL);
INSERT INTO feed VALUES ('journal', 'c1', 2, '{}', 1000.0);
INSERT INTO request VALUES ('s', 1, 1000.0, 700);
PRAGMA user_version = 1;
"""


def test_a_file_of_the_first_format_is_taken_over_with_all_that_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(VERSION_1)
    assert read_starts(path) == {}

    store = Store(path, wall_clock=1001.0)

    assert store.set_aside is None
    assert (store.feeds()["journal"].position, store.feeds()["journal"].gaps) == ("c1", 2)
    assert store.request_sizes("s") == [700]
    store.add_start(StoredStart("s", 5.0, b"{}"))
    store.close()
    again = Store(path, wall_clock=1002.0)
    assert again.starts() == {"s": [b"{}"]}
    again.close()


def test_the_last_ten_starts_of_each_server_are_kept_oldest_first(tmp_path: Path) -> None:
    store = Store(tmp_path / "k.db")
    for number in range(1, 16):
        store.add_start(StoredStart("a", float(number), b"%d" % number))
    store.add_start(StoredStart("b", 3.0, b"other"))
    store.add_start(StoredStart("b", 3.0, b"same start again"))

    expected = {"a": [b"%d" % number for number in range(6, 16)], "b": [b"same start again"]}
    assert store.starts() == expected
    assert read_starts(tmp_path / "k.db") == expected
    store.close()


def test_reading_starts_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    store = Store(path)
    store.add_start(StoredStart("a", 1.0, b"{}"))
    store.close()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    assert read_starts(path) == {"a": [b"{}"]}

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_starts_of_no_store_are_an_error_that_names_it(tmp_path: Path) -> None:
    for folder in (tmp_path, Path("/"), Path()):
        with pytest.raises(StoreError, match="expected a file, found a folder"):
            read_starts(folder)
    with pytest.raises(StoreError, match=r"nothing\.db: No such file"):
        read_starts(tmp_path / "nothing.db")
    (tmp_path / "k.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreError, match=r"k\.db: file is not a database"):
        read_starts(tmp_path / "k.db")


def test_the_alerts_that_were_sent_are_kept_as_they_were_last(tmp_path: Path) -> None:
    store = Store(tmp_path / "k.db")
    assert store.alerts() is None
    store.put_alerts(b"[1]")
    store.put_alerts(b"[2]")
    store.close()
    again = Store(tmp_path / "k.db")
    assert again.alerts() == b"[2]"
    again.close()


def test_a_file_of_the_second_format_is_taken_over_with_all_that_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    store = Store(path)
    store.commit(batch("c1"))
    store.add_start(StoredStart("s", 5.0, b"{}"))
    store.close()
    with closing(sqlite3.connect(path)) as database:  # as it was before there were alerts
        database.executescript("DROP TABLE alerts; PRAGMA user_version = 2;")

    again = Store(path)

    assert again.feeds()["journal"].position == "c1"
    assert again.starts() == {"s": [b"{}"]}
    again.put_alerts(b"[]")
    assert again.alerts() == b"[]"
    again.close()
