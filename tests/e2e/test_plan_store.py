"""`kvexporter plan` beside a running exporter: what it measured, of the server that runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kvexporter.cli import run_cli
from tests.support.exporter import Exporter
from tests.support.journal_files import LiveJournalFile
from tests.support.llama_server import RealLlamaServer, Request
from tests.support.paths import wait_for
from tests.support.tiny_model import KV_BYTES_PER_TOKEN_F16, TRAINING_CONTEXT

pytestmark = pytest.mark.real_server


def test_measured_sizes_and_the_running_servers_cache_make_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        LiveJournalFile(tmp_path / "journal") as journal,
        RealLlamaServer("-c", "4096", "-np", "4", "-kvu", journal=journal) as server,
        Exporter(
            {
                "servers": [
                    {
                        "name": "it",
                        "url": server.url,
                        "journal": {
                            "directory": str(journal.directory),
                            "matches": [{"_SYSTEMD_UNIT": journal.unit}],
                        },
                    }
                ]
            }
        ) as exporter,
    ):
        answers = server.complete_all([Request(prompt, 20, prompt) for prompt in (300, 500, 700)])
        assert [answer.status for answer in answers] == [200] * 3
        asked = ["plan", "--storage.path", str(exporter.store_file), "--config.file", str(exporter.config_file)]

        def planned() -> dict[str, object] | None:
            status = run_cli([*asked, "--format", "json"])
            out = capsys.readouterr().out
            found = json.loads(out) if status != 2 else {}
            return found if found.get("request_tokens", {}).get("count") == 3 else None

        plan = wait_for("the three requests to be stored", planned)
        sizes = sorted(int(size) for size in re.findall(r"stop processing: n_tokens = (\d+)", server.log()))
    assert plan["request_tokens"] == {"count": 3, "p50": sizes[1], "p95": sizes[2], "max": sizes[2]}
    assert plan["today"] == {
        "slots": 4,
        "slot_context_tokens": 4096,
        "pool_capacity_tokens": 4096,
        "pool_shared": True,
    }
    assert (plan["kv_bytes_per_token"], plan["cache_type_k"]) == (KV_BYTES_PER_TOKEN_F16, "f16")
    assert plan["training_context_tokens"] == TRAINING_CONTEXT
    assert isinstance(plan["memory_bytes"], int)
