"""While a log of times past is read, nobody is told of it as if it were now."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kvexporter.fleet import Fleet
from kvexporter.keeper import Keeper
from kvexporter.metrics.exposition import exposition
from kvexporter.snapshot import ExporterSnapshot
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.targets import Target
from tests.support.asking import run
from tests.support.journal_entries import entry
from tests.support.journal_files import journal_from_export

LINES = 20_000
TIMES_PAST = (
    "llama_context_exceeded",
    "llama_request_tokens",
    "llama_kv_pool_fill",
    "llama_slot_tokens",
    "llama_last_",
)


def names(text: str) -> set[str]:
    return {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line and not line.startswith("#")}


def test_what_only_the_log_tells_is_absent_until_it_has_been_read_to_its_end(tmp_path: Path) -> None:
    lines = [f"slot release: id  0 | task {n} | stop processing: n_tokens = 9, truncated = 1" for n in range(LINES)]
    lines.insert(9, "load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'")
    lines.insert(99, "update_slots: decode() failed: Context size has been exceeded.")
    lines.append("srv  update_slots: all slots are idle")
    journal_from_export(b"".join(entry(line, n / 100) for n, line in enumerate(lines)), tmp_path)
    selection = JournalSelection(unit="llama-server", directory=str(tmp_path))

    async def test() -> None:
        fleet = Fleet(lambda: None, Keeper(None))
        fleet.apply([Target("s", unit="llama-server.service", selection=selection, configured=True)])

        def shown() -> set[str]:
            return names(exposition(ExporterSnapshot(1.0, fleet.snapshots(1.0))))

        underway = 0
        while not fleet.caught_up:
            fleet.read_journals(0.1)
            await asyncio.sleep(0.001)
            if not fleet.caught_up:
                underway += fleet.journal_lines()["matched"] > 0
                assert not [name for name in shown() if name.startswith(TIMES_PAST)]
        assert underway, "it was never seen underway"
        assert {"llama_context_exceeded_log_lines_total", "llama_request_tokens_count"} <= shown()
        (server,) = fleet.snapshots(1.0)
        assert (server.counters.answers_truncated, server.counters.error_lines) == (LINES, 1)
        await fleet.aclose()

    run(test())
