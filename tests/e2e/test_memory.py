"""Memory on the real llama-server: the header's arithmetic against the log's, and what a larger pool costs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvexporter.sources.cgroup import CgroupReader
from tests.support.exporter import Exporter
from tests.support.journal_files import LiveJournalFile
from tests.support.llama_server import RealLlamaServer, Request
from tests.support.paths import free_port, wait_for
from tests.support.scrape import Scrape
from tests.support.tiny_model import WIDE, wide_model

pytestmark = pytest.mark.real_server

MIB = 1 << 20
ROUNDING = 0.005 * MIB
"""The log's sizes have two decimals."""
SIZE_LINE = re.compile(
    r"llama_kv_cache: size = +([\d.]+) MiB \( *(\d+) cells, +\d+ layers, +\d+/(\d+) seqs\), "
    r"K \((\w+)\): +([\d.]+) MiB, V \((\w+)\): +([\d.]+) MiB"
)
SLOTS = 4


@pytest.mark.parametrize("cache_type", ["f16", "q8_0", "q4_0"])
def test_the_headers_bytes_equal_the_logs_within_its_rounding(tmp_path: Path, cache_type: str) -> None:
    with LiveJournalFile(tmp_path / "journal") as journal:
        options = ("-c", "65536", "-np", "2", "-ctk", cache_type, "-ctv", cache_type)
        with RealLlamaServer("-lv", "4", *options, journal=journal) as server:
            found = SIZE_LINE.search(server.log())
            assert found is not None
            total, cells, streams = float(found[1]) * MIB, int(found[2]), int(found[3])
            assert (found[4], found[6]) == (cache_type, cache_type)
            assert cells * streams == 65536
            with_log = {
                "name": "log",
                "url": server.url,
                "journal": {"directory": str(journal.directory), "matches": [{"_SYSTEMD_UNIT": journal.unit}]},
            }

            with Exporter({"servers": [{"name": "header", "url": server.url}]}) as exporter:
                shown = exporter.wait_value(1, "llama_kv_bytes_source", server="header", source="header")
                assert shown.value("llama_kv_cache_bytes", server="header") == pytest.approx(total, abs=ROUNDING)
                header_each = shown.value("llama_kv_bytes_per_token", server="header")
                assert header_each == pytest.approx(total / 65536, abs=ROUNDING / 65536)

            with Exporter({"servers": [with_log]}, "--log.level", "debug") as exporter:
                exporter.wait_value(1, "llama_kv_bytes_source", server="log", source="journal")
                wait_for("the header to be read", lambda: "its model's file took" in exporter.log())
                shown = exporter.scrape()
                assert shown.value("llama_kv_cache_bytes", server="log") == pytest.approx(total, abs=ROUNDING)
                assert shown.all("llama_kv_header_bytes_per_token") == []


def number(shown: Scrape, name: str, **labels: str) -> float:
    value = shown.value(name, **labels)
    assert value is not None
    return value


def test_what_a_four_times_larger_pool_costs_is_seen_within_five_percent(tmp_path: Path) -> None:
    port = free_port()
    server = {"name": "it", "url": f"http://127.0.0.1:{port}"}
    small, large = 1024, 4096
    cost = (large - small) * WIDE.kv_bytes_per_token_f16
    with Exporter({"idle_poll_interval": "1s", "servers": [server]}) as exporter:
        with started(exporter, port, small) as (process, ready):
            before = number(ready, "llama_memory_at_ready_bytes", server="it", kind="anon")
            filled_before = filled(process, exporter, small)
        with started(exporter, port, large, not_settled_at=before) as (process, ready):
            after = number(ready, "llama_memory_at_ready_bytes", server="it", kind="anon")
            filled_after = filled(process, exporter, large)
            shown = exporter.scrape()
            assert shown.value("llama_kv_cache_bytes", server="it") == large * WIDE.kv_bytes_per_token_f16
            growth = number(shown, "llama_memory_growth_bytes", server="it", kind="anon")
            now = number(shown, "llama_process_memory_bytes", server="it", kind="anon")
            assert growth == now - after
            report = check(exporter)

        assert after - before == pytest.approx(cost, rel=0.05)
        assert filled_after - filled_before == pytest.approx(cost, rel=0.05)

    (row,) = [line for line in report.splitlines() if " anonymous " in line]
    told = re.search(r"\+(\d+\.\d+) MiB$", row)
    assert told is not None, report
    assert float(told[1]) * MIB == pytest.approx(after - before, abs=ROUNDING)
    assert f"-c: {small} → {large}" in report
    assert re.search(r"pool, tokens +1,024 +4,096 +\+3,072", report), report


def test_a_start_is_known_after_the_exporter_was_started_anew(tmp_path: Path) -> None:
    port = free_port()
    config = {"idle_poll_interval": "1s", "servers": [{"name": "it", "url": f"http://127.0.0.1:{port}"}]}
    with Exporter(config) as exporter, started(exporter, port, 1024) as (process, ready):
        before = number(ready, "llama_memory_at_ready_bytes", server="it", kind="anon")
        if CgroupReader().read(process.pid) is not None:  # these tests may run in the root of all groups
            assert number(ready, "llama_cgroup_memory_bytes", server="it", kind="current") > before
        exporter.stop()
        exporter.launch()
        exporter.wait_ready()
        # Within 10 s: what it shows cannot have settled anew.
        shown = exporter.wait_value(before, "llama_memory_at_ready_bytes", server="it", kind="anon")
        assert number(shown, "llama_memory_at_ready_bytes", server="it", kind="resident") > before


@contextmanager
def started(
    exporter: Exporter, port: int, context: int, not_settled_at: float | None = None
) -> Iterator[tuple[RealLlamaServer, Scrape]]:
    """A server with a pool of this size, and what the exporter shows once its memory has settled."""
    options = ("-c", str(context), "-np", str(SLOTS), "--no-kv-unified", "-cram", "0", "-b", "64", "-ub", "64")
    with RealLlamaServer(*options, "--ctx-checkpoints", "0", port=port, model=wide_model()) as server:

        def settled() -> Scrape | None:
            now = exporter.scrape()
            kept = now.all("llama_memory_at_ready_bytes", server="it", kind="anon")
            start = now.all("llama_process_start_time_seconds", server="it")
            return now if kept and start and kept[0][1] != not_settled_at else None

        yield server, wait_for("the server to settle", settled, 90)


def filled(server: RealLlamaServer, exporter: Exporter, context: int) -> float:
    """Fill the pool with prompts; the process's anonymous memory as the exporter then shows it."""
    share = context // SLOTS
    answers = server.complete_all([Request(share - 16, 8, seed) for seed in range(SLOTS)])
    assert [answer.status for answer in answers] == [200] * SLOTS
    status = Path(f"/proc/{server.pid}/status").read_text()
    now = int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]

    def shown() -> float | None:
        value = number(exporter.scrape(), "llama_process_memory_bytes", server="it", kind="anon")
        return value if abs(value - now) < MIB else None

    return wait_for("the exporter to see the filled pool", shown)


def check(exporter: Exporter) -> str:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "kvexporter", "check"),
            *("--config.file", str(exporter.config_file), "--storage.path", str(exporter.store_file)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TZ": "UTC"},
        check=False,
    )
    return done.stdout
