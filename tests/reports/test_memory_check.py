"""What `check` says of a server's memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvexporter.config import Config
from kvexporter.llama.launch import parse_launch
from kvexporter.llama.model_shape import ModelShape
from kvexporter.reports.check import gather
from kvexporter.reports.memory_check import MemoryFacts, memory_findings
from kvexporter.starts import StartRecord, encode_start
from kvexporter.store import Store, StoredStart
from kvexporter.targets import Target

GIB = 1 << 30
MIB = 1 << 20
DEVSTRAL = ModelShape("llama", layers=40, k_elements=40960, v_elements=40960)
# The operators' own figures: 62,232 MiB before, 75,720 MiB after: 13.17 GiB.
BEFORE = StartRecord(
    pid=7,
    started=1_790_000_000.0,
    settled=1_790_000_100.0,
    resident=62232 * MIB,
    anon=10 * GIB,
    capacity=262144,
    build="b11434",
    options={"-c": "262144", "-np": "4", "-kvu": "on"},
)
AFTER = StartRecord(
    pid=8,
    started=1_790_086_400.0,
    settled=1_790_086_500.0,
    resident=75720 * MIB,
    anon=10 * GIB - 512 * MIB,
    capacity=1048576,
    build="b11434",
    options={"-c": "1048576", "-np": "4", "-kvu": "on", "-ctk": "q8_0"},
)


def said(facts: MemoryFacts, *arguments: str, environment: dict[str, str] | None = None) -> list[tuple[str, str]]:
    target = Target("main", options=parse_launch(arguments, environment))
    return [(finding.level, finding.text) for finding in memory_findings(target, facts)]


def test_the_last_two_starts_are_printed_side_by_side() -> None:
    texts = [text for _, text in said(MemoryFacts(starts=[replace_pid(BEFORE, 6), BEFORE, AFTER]))]

    assert [text.split() for text in texts[1:4]] == [
        ["resident", "60.77", "GiB", "73.95", "GiB", "+13.17", "GiB"],
        ["anonymous", "10.00", "GiB", "9.50", "GiB", "-512.00", "MiB"],
        ["pool,", "tokens", "262,144", "1,048,576", "+786,432"],
    ]
    assert texts[4:] == ["-c: 262144 → 1048576", "-ctk: (not given) → q8_0"]
    assert len({len(text) for text in texts[:4]}) == 1  # columns


def replace_pid(record: StartRecord, pid: int) -> StartRecord:
    return StartRecord(pid=pid, started=record.started - 86400, settled=record.settled, resident=1)


def test_a_start_that_was_seen_late_is_said_to_be_so() -> None:
    late = StartRecord(pid=7, started=1.0, settled=9999.0, late=True, resident=GIB)
    assert [level for level, _ in said(MemoryFacts(starts=[late, AFTER]))][-1] == "warning"


def test_one_start_is_told_and_none_says_nothing() -> None:
    ((level, text),) = said(MemoryFacts(starts=[BEFORE]))
    assert level == "ok"
    assert "60.77 GiB resident, of which 10.00 GiB anonymous" in text
    assert said(MemoryFacts()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "by its model's file one token takes 160.00 KiB in 40 layers of f16"),
        (["-ctk", "q8_0", "-ctv", "q8_0"], "by its model's file one token takes 85.00 KiB in 40 layers of q8_0"),
        (["-ctk", "q8_0"], "by its model's file one token takes 122.50 KiB in 40 layers of q8_0/f16"),
    ],
)
def test_the_bytes_of_a_token_are_told_with_their_types(arguments: list[str], expected: str) -> None:
    assert said(MemoryFacts(DEVSTRAL), *arguments, environment={}) == [("ok", expected)]


def test_layers_with_a_window_are_told() -> None:
    ((_, text),) = said(MemoryFacts(replace(DEVSTRAL, windowed_layers=29)), environment={})
    assert text.endswith("; 29 more keep a sliding window only")


def test_why_nothing_is_computed_is_told() -> None:
    assert said(MemoryFacts(problem="/m.gguf may not be read")) == [
        ("warning", "its KV cache cannot be computed: /m.gguf may not be read")
    ]
    assert "environment that cannot be read" in said(MemoryFacts(DEVSTRAL), environment=None)[0][1]
    assert "q3_k" in said(MemoryFacts(DEVSTRAL), "-ctk", "q3_k", environment={})[0][1]


def test_the_starts_are_read_from_the_store_of_a_running_exporter(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    path = tmp_path / "k.db"
    store = Store(path)
    for record in (BEFORE, AFTER):
        store.add_start(StoredStart("far", record.started, encode_start(record)))
    config = tmp_path / "kvexporter.yml"
    config.write_text("servers: [{name: far, url: 'http://127.0.0.1:9'}]\n")
    from kvexporter.config import load_config

    findings = gather(load_config(config), str(tmp_path / "proc"), stores=[tmp_path / "nothing.db", path])

    assert any("+13.17 GiB" in finding.text for finding in findings if finding.subject == "far")
    store.close()


def test_a_store_that_is_none_is_said_and_the_rest_is_checked(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "k.db").write_text("this is no database" * 100)

    findings = gather(Config(), str(tmp_path / "proc"), stores=[tmp_path / "k.db"])

    (said,) = [finding for finding in findings if finding.subject == "store"]
    assert "not compared" in said.text
    assert any(finding.subject == "processes" for finding in findings)
