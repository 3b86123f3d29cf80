"""What recordings, journals and the store tell of requests' sizes and pools."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvexporter.diagnosing.reading import LogInput
from kvexporter.llama.log import parse_line
from kvexporter.pool_geometry import Geometry
from kvexporter.reports.plan_told import from_log, from_stores
from kvexporter.server import Server
from kvexporter.snapshot import Incident
from kvexporter.store import Batch, Store
from kvexporter.store_file import StoreError
from tests.support.journal_files import LiveJournalFile
from tests.support.paths import RECORDINGS

EXPECTED: dict[str, Any] = json.loads((RECORDINGS / "expected.json").read_text())
LOGS = {name: RECORDINGS / name / "server.log" for name in EXPECTED if (RECORDINGS / name / "server.log").exists()}


def lines(name: str) -> list[bytes]:
    return (RECORDINGS / name / "server.log").read_bytes().splitlines()


@pytest.mark.parametrize("name", sorted(LOGS))
def test_each_recordings_requests_are_measured(name: str) -> None:
    expected = EXPECTED[name]
    (told,) = from_log(LogInput(log_file=LOGS[name]))
    refused = expected["incidents"]["slot"]
    assert expected["releases"] - refused <= len(told.sizes.sizes) <= expected["releases"] + refused
    if not refused and expected.get("largest_request_tokens"):
        assert told.sizes.largest == expected["largest_request_tokens"]
    assert told.geometry.slots == expected["geometry"]["slots"]
    assert told.geometry.slot_context == expected["geometry"]["slot_context_tokens"]


def test_the_cache_types_of_old_builds_are_in_their_logs() -> None:
    (told,) = from_log(LogInput(log_file=RECORDINGS / "b6666" / "one_slot_q8" / "server.log"))
    assert (told.cache_type_k, told.cache_type_v) == ("q8_0", "q8_0")
    # 2 layers of 64 elements, K and V, at 34/32 of a byte; the log rounds to 0.01 MiB.
    assert told.kv_bytes_per_token == pytest.approx(2 * 64 * 2 * 34 / 32, rel=0.01)


def test_a_folder_of_journal_files_is_read_by_its_unit(tmp_path: Path) -> None:
    with LiveJournalFile(tmp_path, unit="llama@a.service") as journal:
        journal.write_burst(lines("b11434/unified_overflow"))
        journal.wait_for_file()
    (told,) = from_log(LogInput("llama@a.service", tmp_path))
    (died,) = EXPECTED["b11434/unified_overflow"]["incident_details"]
    assert sorted(told.sizes.sizes) == sorted(died["slot_tokens"].values())
    assert told.geometry == Geometry(4, 4096, 4096, True, "journal")


def stored(path: Path, *, servers: bytes | None = None) -> None:
    server = Server("main", unit="main.service")
    for number, line in enumerate(lines("b8635/unified_overflow")):
        parsed = parse_line(line)
        if parsed is not None:
            server.line(parsed, float(number))
    refused = Incident("slot", 1.0, 1.0, (), 1, 4096, None, None, None, None, None, request_tokens=5000)
    store = Store(path)
    now = time.time()
    memory = msgspec.json.encode({"main": server.memory()})
    requests = [("main", 1, now, 300), ("main", 2, now, 0), ("main", 3, now, 700)]
    incidents = [("main", 1, now, msgspec.json.encode(refused)), ("main", 2, now, b"{of another version")]
    store.commit(Batch("journal", "c1", 0, servers or memory, incidents, requests))
    store.close()


def test_the_store_tells_sizes_and_pool(tmp_path: Path) -> None:
    stored(tmp_path / "k.db")
    (told,) = from_stores([tmp_path / "missing.db", tmp_path / "k.db"])
    assert (told.name, told.sizes.sizes) == ("main", (300, 700, 5000))
    assert told.geometry == Geometry(4, 4096, 4096, True, "journal")
    assert told.kv_bytes_per_token == 512


def test_the_store_is_read_beside_the_exporter_that_uses_it(tmp_path: Path) -> None:
    stored(tmp_path / "k.db")
    with closing(Store(tmp_path / "k.db")) as store:
        store.commit(Batch("journal", "c2", 0, b"{}", [], [("main", 4, time.time(), 900)]))
        (told,) = from_stores([tmp_path / "k.db"])
    assert told.sizes.sizes == (300, 700, 900, 5000)


def test_counts_of_another_version_leave_the_sizes(tmp_path: Path) -> None:
    stored(tmp_path / "k.db", servers=b'{"main": 5}')
    (told,) = from_stores([tmp_path / "k.db"])
    assert (told.sizes.largest, told.geometry) == (5000, Geometry())


def test_a_file_that_is_no_store_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "k.db").write_bytes(b"x" * 5000)
    with pytest.raises(StoreError, match=r"k\.db: file is not a database"):
        from_stores([tmp_path / "k.db"])
    assert from_stores([tmp_path / "missing.db"]) == []
