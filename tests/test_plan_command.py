"""`kvexporter plan`: what it takes, what it prints, its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kvexporter.cli import run_cli
from kvexporter.store import Batch, Store
from tests.support import gguf_bytes
from tests.support.paths import RECORDINGS

Captured = pytest.CaptureFixture[str]
DESKTOP = ("plan", "--p95", "6100", "--max", "12288", "--slots", "3", "--memory", "2234M")


def planned(capsys: Captured, *arguments: str) -> dict[str, Any]:
    """The plan as JSON, and its exit status as `status`."""
    status = run_cli([*arguments, "--format", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {**found, "status": status}


def test_the_desktops_case_from_the_models_file(capsys: Captured, tmp_path: Path) -> None:
    model = tmp_path / "devstral.gguf"
    model.write_bytes(gguf_bytes.header(gguf_bytes.llama(**{"llama.context_length": gguf_bytes.u32(393_216)})))
    found = planned(capsys, *DESKTOP, "--model", str(model))
    assert found["status"] == 0
    assert (found["kv_bytes_per_token"], found["training_context_tokens"]) == (160 * 1024, 393_216)
    queue = next(each for each in found["configurations"] if each["flags"][:6] == [
        *("-c", "12288", "-np", "1", "-ctk", "q8_0")
    ])  # fmt: skip
    assert queue["kv_bytes"] == 1_020 << 20
    first = found["configurations"][found["first_enough"]]
    assert (first["slots"], first["guaranteed_tokens"], first["kv_bytes"]) == (3, 6_144, 1_530 << 20)


def test_the_gb10s_case_from_its_log(capsys: Captured) -> None:
    log = RECORDINGS / "replay-b11434-full" / "server.log"
    found = planned(capsys, "plan", "--log-file", str(log), "--kv-bytes-per-token", "49152", "--memory", "64G")
    assert found["today"] == {
        "slots": 4,
        "slot_context_tokens": 262_144,
        "pool_capacity_tokens": 262_144,
        "pool_shared": True,
    }
    assert found["request_tokens"] == {"count": 4, "p50": 23_294, "p95": 158_224, "max": 158_224}
    b = next(each for each in found["configurations"] if each["option"] == "grown_q8")
    assert " ".join(b["flags"]) == (
        "-c 1048576 -np 4 -kvu --kv-unified-per-slot 262144 -ctk q8_0 -ctv q8_0 -fa on"
    )  # fmt: skip
    assert b["kv_bytes"] == 51 << 29  # 25.5 GiB
    assert found["configurations"][0]["overcommitted"] is True


def test_the_exporters_store_is_the_default(capsys: Captured, tmp_path: Path) -> None:
    with closing(Store(tmp_path / "k.db")) as store:
        requests = [("main", number, time.time(), number) for number in range(1, 101)]
        store.commit(Batch("journal", "c", 0, b"{}", [], requests))
    found = planned(capsys, "plan", "--storage.path", str(tmp_path / "k.db"), "--slots", "2")
    assert (found["server"], found["request_tokens"]["count"], found["request_tokens"]["p95"]) == ("main", 100, 95)


def test_nothing_that_fits_is_exit_status_1(capsys: Captured) -> None:
    found = planned(capsys, *DESKTOP[:-1], "1M", "--kv-bytes-per-token", "163840")
    assert (found["status"], found["first_enough"]) == (1, None)


def test_text_and_markdown_are_printed_too(capsys: Captured) -> None:
    assert run_cli([*DESKTOP, "--kv-bytes-per-token", "163840", "--clients"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "Tell each client a window of 6,144 tokens" in text
    assert run_cli([*DESKTOP, "--kv-bytes-per-token", "163840", "--format", "markdown"]) == 0
    assert "| 1 | split |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--p95", "10", "--log-file", "x"], "expected one of --journal-export, --log-file, --journal and --p95"),
        (["--p95", "10", "--unit", "x"], "--unit and --since choose in a journal"),
        (["--log-file", "x", "--since", "today"], "--unit and --since choose in a journal"),
        (["--since", "soon"], "--since"),
        (["--journal", "nothing"], "nothing"),
        (["--max", "10"], "--max goes with --p95"),
        (["--p95", "10", "--max", "9"], "no less than it"),
        (["--p95", "10", "--slots", "2", "--memory", "lots"], "expected bytes, or a size such as 512M or 16G"),
        (["--p95", "10", "--slots", "2", "--cache-type", "q9"], "expected a cache type such as f16, q8_0 or q4_0"),
        (["--p95", "0"], "0 is not in the range"),
        (["--p95", "10", "--slots", "300"], "300 is not in the range"),
        (["--p95", "10", "--slots", "2", "--model", "nothing.gguf"], "'nothing.gguf' does not exist"),
        (["--storage.path", "nothing.db"], "there is no store in nothing.db: run the exporter for a while, or give"),
        (["--log-file", "nothing.log"], "nothing.log: No such file or directory"),
        (["--p95", "10", "--slots", "2", "--config.file", "nothing.yml"], "nothing.yml"),
        (["--p95", "10", "--server", "nobody"], "no server 'nobody' runs here: say --slots to plan without it"),
        (["--log-file", str(RECORDINGS / "b11434/unified_overflow/server.log"), "--server", "x"], "no server 'x'"),
    ],
)  # fmt: skip
def test_what_it_cannot_use_is_exit_status_2_with_what_to_do(
    arguments: list[str], words: str, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(["plan", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""
    assert "Traceback" not in said.err


def test_a_file_that_is_no_model_is_said_to_be_none(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGML" + bytes(64))
    found = planned(capsys, *DESKTOP, "--model", str(tmp_path / "m.gguf"))
    assert any("is not a GGUF file; say --kv-bytes-per-token" in note for note in found["notes"])
    assert found["configurations"][0]["kv_bytes"] is None


def test_the_command_line_alone_loads_neither_rich_nor_the_model() -> None:
    script = (
        "import sys, kvexporter.cli; print(*(name for name in ('rich', 'httpx', 'msgspec') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_no_slots_in_a_log_are_none_that_are_known(capsys: Captured, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "load_model: initializing, n_slots = 0, n_ctx_slot = 0, kv_unified = 'true'\n"
        "slot release: id 0 | stop processing: n_tokens = 100\n"
        "update_slots: decode() failed: Context size has been exceeded.\n"
    )
    assert run_cli(["diagnose", "--log-file", str(log)]) == 1
    assert "each of up to ? tokens" in capsys.readouterr().out
    assert run_cli(["plan", "--log-file", str(log)]) == 2
    assert "say it with --slots" in capsys.readouterr().err


def test_requests_that_no_cache_can_hold_are_said_to_be_so(capsys: Captured) -> None:
    assert run_cli(["plan", "--p95", "99999999999999", "--slots", "256", "--memory", "16G", "--clients"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "kvexporter: 256 slots for requests of that size need more than the largest -c there is\n"
