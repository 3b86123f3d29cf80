"""The demonstration, as a person starts it: all of it real but the llama-servers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from kvexporter.demo.cast import STORIES
from kvexporter.rules import thresholds as limit
from tests.support.browser import Watched, chromium
from tests.support.paths import RECORDINGS, free_port, wait_for
from tests.support.real_systemd import RealSystemd, installed_tree
from tests.support.scrape import Scrape

EXPECTED = json.loads((RECORDINGS / "expected.json").read_text())["replay-b11434-full"]["incident_details"][0]
DEMO = [sys.executable, "-m", "kvexporter.demo"]


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d[\d,]*", text))


def incident_numbers() -> set[str]:
    slots = EXPECTED["slot_tokens"].values()
    return {f"{tokens:,}" for tokens in (*slots, EXPECTED["sum_tokens"], EXPECTED["excess_tokens"])}


class Demo:
    """One that runs, with a folder of its own for temporary files; what it prints is kept."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.folder = folder
        self.printed = ""
        command = [*DEMO, "--port", str(self.port), *options]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self.printed += line

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=30, trust_env=False)

    def scrape(self) -> Scrape:
        return Scrape(self.get("/metrics").text)

    def wait_server(self) -> None:
        wait_for("the exporter to see the servers", lambda: "llama_up" in metrics(self.port), 120)

    def end(self, number: signal.Signals) -> int:
        """Send the signal, wait for the end, and give the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(60)
        self._reader.join(60)
        return status

    def left_behind(self) -> list[Any]:
        """Processes, files and sockets that it has left."""
        return [*children_in(self.folder), *self.folder.iterdir(), *(["its port"] if metrics(self.port) else [])]


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Demo]:
    demo = Demo(folder, *options)
    try:
        yield demo
    except BaseException as error:
        error.add_note(f"it printed:\n{demo.printed}")
        raise
    finally:
        demo.end(signal.SIGKILL)


def test_one_story_ends_with_the_recorded_incident_s_table_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*DEMO, "--once", "--speed", "60", "--port", str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 requests died" in done.stdout
    assert incident_numbers() <= numbers(done.stdout)
    assert "262,144 tokens and 4 times as many are promised" in done.stdout
    for server, alert in ALERTS_TOLD:
        assert f"! {server}: {alert} (" in done.stdout
    assert "sleeping: has fallen asleep" in done.stdout
    assert "sleeping: woken by a client's request" in done.stdout
    assert "crashing: ended with exit status 127" in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert children_in(tmp_path) == []


def test_two_that_start_at_once_have_an_exporter_each(tmp_path: Path) -> None:
    command = [*DEMO, "--once", "--story", "safe", "--speed", "60"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    pair = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        for _ in range(2)
    ]
    printed = [one.communicate(timeout=180)[0] for one in pair]
    assert [one.returncode for one in pair] == [0, 0], printed
    pages = [re.findall(r"(http://\S+)/ +the exporter's page", text) for text in printed]
    assert pages[0] != pages[1]
    assert list(tmp_path.iterdir()) == []


ALERTS_TOLD = (
    ("agents", "LlamaPoolOvercommitted"),
    ("agents", "LlamaPoolFillingUp"),
    ("agents", "LlamaPoolAlmostFull"),
    ("agents", "LlamaContextExceeded"),
    ("crashing", "LlamaServerCrashLooping"),
)


def test_all_stories_are_seen_at_once_and_come_again(tmp_path: Path) -> None:
    with running(tmp_path, "--speed", "60", "--linger", "2") as demo:
        demo.wait_server()

        def twice() -> Scrape | None:
            found = demo.scrape()
            total = found.value("llama_context_exceeded_total", server="agents", cause="pool")
            return found if (total or 0) >= 2 else None

        found = wait_for("the pool to run out a second time", twice, 240, 1)
        assert found.value("llama_context_exceeded_requests_total", server="agents", cause="pool") == 8
        held = {
            str(slot): found.value("llama_last_incident_slot_tokens", server="agents", slot=str(slot))
            for slot in range(4)
        }
        assert held == EXPECTED["slot_tokens"]
        assert found.value("llama_kv_pool_overcommit_ratio", server="agents") == 4
        assert found.value("llama_kv_pool_overcommit_ratio", server="safe") == 1
        assert found.value("llama_context_exceeded_total", server="safe", cause="pool") == 0
        assert (found.value("llama_request_tokens_count", server="safe") or 0) > 10
        assert (found.value("llama_unit_restarts_total", server="crashing") or 0) >= limit.CRASH_RESTARTS
        for code in ("127", "1"):
            assert (found.value("llama_unit_exits_total", server="crashing", code=code) or 0) > 0

        servers = {server["name"]: server for server in demo.get("/api/v1/servers").json()["servers"]}
        assert set(servers) == set(STORIES)
        assert servers["agents"]["standing"]["level"] == "page"
        assert "The pool ran out" in servers["agents"]["standing"]["text"]
        assert servers["safe"]["standing"]["level"] == "ok"
        assert servers["crashing"]["unit"] == "llama-crashing.service"
        with chromium() as browser, Watched(browser, f"http://127.0.0.1:{demo.port}/") as shown:
            expect(shown.page.locator("#link-text")).to_have_text("Live", timeout=60_000)
            for story in STORIES:
                expect(shown.page.get_by_role("heading", name=story, exact=True)).to_be_visible(timeout=60_000)
            expect(shown.page.get_by_text("The pool ran out").first).to_be_visible(timeout=60_000)
            assert shown.complaints == []
        # The sleeper is never woken by the exporter: the demonstration ends with an error if it is.
        assert demo.process.poll() is None
        assert demo.end(signal.SIGTERM) == 0
        assert "again" in demo.printed
        assert demo.left_behind() == []


def test_stories_can_be_chosen(tmp_path: Path) -> None:
    options = ["--once", "--story", "crashing", "--story", "safe", "--port", str(free_port()), "--speed", "60"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([*DEMO, *options], capture_output=True, text=True, timeout=180, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 llama-server stand-ins" in done.stdout
    assert "agents" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_prometheus_and_alertmanager_run_with_the_shipped_files_and_tell_the_incident(tmp_path: Path) -> None:
    with running(tmp_path, "--speed", "60", "--linger", "30", "--with-prometheus") as demo:

        def url(of: str) -> str | None:
            found = re.search(rf"(http://127\.0\.0\.1:\d+)  {of},", demo.printed)
            return found[1] if found else None

        prometheus = wait_for("Prometheus' URL", lambda: url("Prometheus"), 180)
        alertmanager = wait_for("Alertmanager's URL", lambda: url("Alertmanager"))
        assert "Grafana" in demo.printed

        def firing(base: str, path: str) -> set[tuple[str, str]]:
            found = httpx.get(base + path, timeout=30, trust_env=False).json()
            alerts = found if isinstance(found, list) else found["data"]["alerts"]
            labels = [one["labels"] for one in alerts if one.get("state") != "pending"]
            return {(one["alertname"], one.get("server", "")) for one in labels}

        expected = {
            ("LlamaContextExceeded", "agents"),
            ("LlamaPoolFillingUp", "agents"),
            ("LlamaServerCrashLooping", "crashing"),
        }
        wait_for("the alerts in Prometheus", lambda: expected <= firing(prometheus, "/api/v1/alerts"), 180, 1)
        wait_for("the alerts in Alertmanager", lambda: expected <= firing(alertmanager, "/api/v2/alerts"), 60, 1)
        assert all(server not in ("safe", "sleeping") for _, server in firing(prometheus, "/api/v1/alerts"))
        wait_for("the page to somebody", lambda: "@ Alertmanager to 'page': LlamaContextExceeded" in demo.printed, 90)
        rules = httpx.get(f"{prometheus}/api/v1/rules", timeout=30, trust_env=False).json()["data"]["groups"]
        assert {group["name"] for group in rules} >= {"kvexporter-pool", "kvexporter-server", "kvexporter-memory"}
        assert [rule for group in rules for rule in group["rules"] if rule["health"] == "err"] == []
        assert demo.end(signal.SIGINT) == 0
        assert demo.left_behind() == []


# ---- its end ---------------------------------------------------------------------------------------------------------


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


# Seconds after its folder is there: before the journal, the exporter, the stand-ins; while Prometheus starts.
@pytest.mark.parametrize("after", [0.0, 0.1, 0.4, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_leaves_nothing_behind_when_it_is_ended_while_it_starts(
    tmp_path: Path, number: signal.Signals, after: float
) -> None:
    with running(tmp_path, "--with-prometheus") as demo:
        wait_for("its folder", lambda: list(tmp_path.iterdir()), 60, 0.005)
        time.sleep(after)
        status = demo.end(number)
        assert status == (0 if number == signal.SIGTERM else -signal.SIGKILL), demo.printed
        if number == signal.SIGKILL:
            wait_for("its janitor to clean up", lambda: demo.left_behind() == [], 60)
        assert demo.left_behind() == []
        assert "Traceback" not in demo.printed


def test_its_processes_and_files_are_gone_even_when_it_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, "--speed", "1") as demo:
        demo.wait_server()
        demo.end(signal.SIGKILL)
        wait_for("its processes to end", lambda: demo.left_behind() == [], 30)


def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    command = [*DEMO, "--port", str(free_port())]
    demo = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert demo.stdout is not None
    demo.stdout.readline()
    demo.stdout.close()
    assert demo.stderr is not None
    assert demo.wait(120) == 0
    assert demo.stderr.read() == ""
    demo.stderr.close()
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_refused_and_one_that_was_not_asked_for_is_passed_over(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [*DEMO, "--once", "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"kvexporter demo: port {port} of 127.0.0.1: something listens on it already; choose another with --port\n"
    )
    assert list(tmp_path.iterdir()) == []
    assert children_in(tmp_path) == []


@pytest.mark.real_systemd
def test_without_journal_remote_logs_are_files_and_the_host_s_own_journal_gets_nothing() -> None:
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
        host.run("journalctl", "--sync")
        journal = host.run("journalctl", "-o", "cat", "--no-pager").stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert "apt-get install systemd-journal-remote" in done.stdout
    assert incident_numbers() <= numbers(done.stdout)
    assert "Context size has been exceeded" not in journal
    assert "llama-" not in journal


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
