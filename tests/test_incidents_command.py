"""`kvexporter incidents`: from the store, beside a running exporter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from kvexporter.cli import run_cli
from kvexporter.incident_fields import incident_fields
from kvexporter.snapshot import Incident, IncidentSlot
from kvexporter.store import Batch, Store
from tests.support.snapshots import FOUR_AGENTS

Captured = pytest.CaptureFixture[str]

REFUSED = Incident("slot", 1_790_000_070.5, 1_790_000_070.5, (IncidentSlot(3, 6, 5000, None),), 1, 4096, 5000, 904,
                   None, None, 3, 5000)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "k.db")
    yield opened
    opened.close()


def put(store: Store, server: str, *incidents: Incident) -> None:
    kept = [(server, n, each.ended, msgspec.json.encode(each)) for n, each in enumerate(incidents, 1)]
    store.commit(Batch(f"journal of {server}", "c1", 0, b"{}", incidents=kept))


def path_of(store: Store) -> str:
    return str(store.path)


def test_they_are_listed_while_the_exporter_has_the_store_open(store: Store, capsys: Captured) -> None:
    put(store, "main", FOUR_AGENTS)
    put(store, "other", REFUSED)
    assert run_cli(["incidents", "--storage.path", path_of(store)]) == 0
    text = capsys.readouterr().out
    assert "main: the latest 1 incident\n" in text
    assert "  2026-09-21 14:13:20 UTC, the pool ran out: 4 requests died\n" in text
    assert "     sum        262,863             100.3%\n" in text
    assert "  719 more than" not in text.splitlines()
    assert "other: the latest 1 incident\n" in text
    assert "  The request had 5,000 tokens, 904 more than its slot's 4,096.\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_of_each_server_the_latest_are_shown(store: Store, capsys: Captured) -> None:
    put(store, "main", *(replace(FOUR_AGENTS, requests_failed=n) for n in range(1, 31)))
    assert run_cli(["incidents", "--storage.path", path_of(store), "--last", "2", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["requests_failed"] for each in found] == [29, 30]


def test_the_json_has_the_fields_that_all_views_have(store: Store, capsys: Captured) -> None:
    put(store, "main", FOUR_AGENTS, REFUSED)
    run_cli(["incidents", "--storage.path", path_of(store), "--format", "json"])
    assert json.loads(capsys.readouterr().out) == [
        {"server": "main", **incident_fields(FOUR_AGENTS)},
        {"server": "main", **incident_fields(REFUSED)},
    ]


def test_the_markdown_has_a_table_for_each(store: Store, capsys: Captured) -> None:
    put(store, "main", FOUR_AGENTS)
    run_cli(["incidents", "--storage.path", path_of(store), "--format", "markdown"])
    text = capsys.readouterr().out
    assert "## main: the latest 1 incident\n" in text
    assert "| 0 | " in text
    assert "| sum |  | 262,863 | 100.3% |" in text


def test_one_server_can_be_chosen(store: Store, capsys: Captured) -> None:
    put(store, "main", FOUR_AGENTS)
    put(store, "other", REFUSED)
    run_cli(["incidents", "--storage.path", path_of(store), "--server", "other", "--format", "json"])
    assert [each["server"] for each in json.loads(capsys.readouterr().out)] == ["other"]
    assert run_cli(["incidents", "--storage.path", path_of(store), "--server", "third"]) == 2
    assert "'third' is kept (servers with incidents: main, other)" in capsys.readouterr().err


def test_none_are_said_to_be_none(store: Store, capsys: Captured) -> None:
    for form, says in (("text", "No incident is kept"), ("markdown", "No incident is kept"), ("json", "[]")):
        assert run_cli(["incidents", "--storage.path", path_of(store), "--format", form]) == 0
        assert says in capsys.readouterr().out


def test_an_incident_of_an_earlier_version_is_read(store: Store, capsys: Captured) -> None:
    detail = msgspec.json.decode(msgspec.json.encode(FOUR_AGENTS))
    del detail["demand_above_seconds"], detail["build"]
    store.commit(Batch("j", "c1", 0, b"{}", incidents=[("main", 1, 5.0, msgspec.json.encode(detail))]))
    assert run_cli(["incidents", "--storage.path", path_of(store), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["sum_tokens"] == 262_863


def test_what_cannot_be_read_is_said_with_status_2(tmp_path: Path, store: Store, capsys: Captured) -> None:
    assert run_cli(["incidents", "--storage.path", str(tmp_path / "none.db")]) == 2
    assert "there is no store at" in capsys.readouterr().err
    (tmp_path / "bad.db").write_bytes(b"no database at all" * 100)
    assert run_cli(["incidents", "--storage.path", str(tmp_path / "bad.db")]) == 2
    assert "bad.db: " in capsys.readouterr().err
    store.commit(Batch("j", "c1", 0, b"{}", incidents=[("main", 1, 5.0, b"{}")]))
    assert run_cli(["incidents", "--storage.path", path_of(store)]) == 2
    assert "an incident in it cannot be read" in capsys.readouterr().err


def test_the_store_is_left_as_it_is(store: Store, capsys: Captured) -> None:
    put(store, "main", FOUR_AGENTS)
    before = sorted(path.name for path in store.path.parent.iterdir())
    run_cli(["incidents", "--storage.path", path_of(store)])
    assert sorted(path.name for path in store.path.parent.iterdir()) == before
    assert len(store.incidents("main")) == 1


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("empty", "this is no store of kvexporter's"),
        ("folder", "expected a file, found a folder"),
        ("text", "file is not a database"),
    ],
)
def test_what_is_no_store_is_said_to_be_none(tmp_path: Path, what: str, said: str, capsys: Captured) -> None:
    path = tmp_path / what
    if what == "folder":
        path.mkdir()
    else:
        path.write_text("" if what == "empty" else "no database\n" * 1000)
    assert run_cli(["incidents", "--storage.path", str(path)]) == 2
    assert capsys.readouterr().err == f"kvexporter: {path}: {said}\n"
