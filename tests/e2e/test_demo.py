"""The demonstration, as a person starts it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.support.paths import RECORDINGS, free_port, wait_for
from tests.support.real_systemd import RealSystemd, installed_tree

EXPECTED = json.loads((RECORDINGS / "expected.json").read_text())["replay-b11434-full"]["incident_details"][0]
DEMO = [sys.executable, "-m", "kvexporter.demo"]


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d[\d,]*", text))


def incident_numbers() -> set[str]:
    slots = EXPECTED["slot_tokens"].values()
    return {f"{tokens:,}" for tokens in (*slots, EXPECTED["sum_tokens"], EXPECTED["excess_tokens"])}


def test_one_story_ends_with_the_recorded_incident_s_table_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*DEMO, "--once", "--speed", "60", "--port", str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 requests died" in done.stdout
    assert incident_numbers() <= numbers(done.stdout)
    assert "262,144 tokens and 4 times as many are promised" in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert children_in(tmp_path) == []


def test_ctrl_c_ends_it_cleanly_in_the_middle_of_the_story(tmp_path: Path) -> None:
    port = free_port()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*DEMO, "--speed", "1", "--port", str(port)]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        wait_for("the exporter to see the server", lambda: "llama_up" in metrics(port), 60)
        assert children_in(tmp_path) != []
        demo.send_signal(signal.SIGINT)
        output, errors = demo.communicate(timeout=60)
    finally:
        demo.kill()
        demo.communicate()
    assert demo.returncode == 0, output + errors
    assert errors == ""
    assert list(tmp_path.iterdir()) == []
    assert children_in(tmp_path) == []


def test_its_processes_end_even_when_it_is_killed(tmp_path: Path) -> None:
    port = free_port()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*DEMO, "--speed", "1", "--port", str(port)]
    demo = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    try:
        wait_for("the exporter to see the server", lambda: "llama_up" in metrics(port), 60)
    finally:
        demo.kill()
        demo.wait()
    wait_for("its processes to end", lambda: children_in(tmp_path) == [], 30)


@pytest.mark.real_systemd
def test_without_journal_remote_the_host_s_own_journal_carries_the_story() -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "import kvexporter.demo.journal_writer as writer\n"
        "from kvexporter.cli import run_cli\n"
        "writer.JOURNAL_REMOTE = Path('/nonexistent')\n"
        f"sys.exit(run_cli(['demo', '--once', '--speed', '60', '--port', '{free_port()}']))\n"
    )
    with RealSystemd(binds=installed_tree()) as host:
        host.write("/tmp/demo.py", script)
        done = host.run("/opt/kvexporter/bin/run-python", "/tmp/demo.py", timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this host's journal" in done.stdout
    assert incident_numbers() <= numbers(done.stdout)


def metrics(port: int) -> str:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10, trust_env=False).text
    except httpx.TransportError:
        time.sleep(0.1)
        return ""


def children_in(folder: Path) -> list[str]:
    """Processes that were started with this folder for their temporary files."""
    mark = f"TMPDIR={folder}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append((path.parent / "cmdline").read_text())
        except OSError:
            continue
    return found
