"""Counts from log files are exact: a real writer, the real logrotate, the real llama-server, and an exporter that dies.

KVEXPORTER_KILLS and KVEXPORTER_SEED as in test_exactly_once.py.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvexporter.reading_links import MOST_READERS
from tests.support.counted_log import Series, Writer, count, runs, series, wait_counted
from tests.support.exporter import Exporter
from tests.support.llama_server import RealLlamaServer
from tests.support.paths import SetupMissingError, wait_for

KILLS = int(os.environ.get("KVEXPORTER_KILLS", "12")) // 2 + 1
RATE = 1500.0


def config(path: Path) -> dict[str, Any]:
    # An address where nobody listens, else the one in the recorded log would be asked.
    return {"discovery": False, "servers": [{"name": "s", "url": "http://127.0.0.1:9", "log": {"file": str(path)}}]}


@pytest.fixture
def moments() -> random.Random:
    seed = int(os.environ.get("KVEXPORTER_SEED") or random.randrange(2**32))
    print(f"KVEXPORTER_SEED={seed}")
    return random.Random(seed)


class LogWriter:
    """A process of its own that appends to a log what it is given, and opens the log anew when it is told to."""

    _PROGRAM = """
import os, sys
path, flags = sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND
log = os.open(path, flags, 0o644)
for line in sys.stdin.buffer:
    if line == b"reopen\\n":
        os.close(log)
        log = os.open(path, flags, 0o644)
    else:
        os.write(log, line)
"""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", self._PROGRAM, str(path)], stdin=subprocess.PIPE)
        self._lock = threading.Lock()
        self._bursts = 0
        wait_for("the log", path.exists)

    def write(self, lines: Sequence[str]) -> None:
        with self._lock:
            assert self._process.stdin is not None
            # A real server's lines differ from run to run, by their times at least; recorded ones do not.
            self._bursts += 1
            self._process.stdin.write("".join(line + "\n" for line in (f"burst {self._bursts}", *lines)).encode())
            self._process.stdin.flush()

    def reopen(self) -> None:
        self.write(["reopen"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "log"
    folder.mkdir()
    return folder / "llama.log"


@pytest.fixture
def writer(log: Path) -> Iterator[LogWriter]:
    one = LogWriter(log)
    yield one
    one.close()


class Logrotate:
    """The real one, forced to rotate at each call."""

    def __init__(self, path: Path, *options: str) -> None:
        self._program = shutil.which("logrotate") or shutil.which("logrotate", path="/usr/sbin")
        if self._program is None:
            raise SetupMissingError("logrotate")
        folder = path.parent.parent
        self._config, self._state = folder / "logrotate.conf", folder / "logrotate.state"
        lines = "\n  ".join(("rotate 200", "su root root", *options))
        self._config.write_text(f"{path} {{\n  {lines}\n}}\n")
        self._config.chmod(0o644)

    def __call__(self) -> None:
        command = [str(self._program), "--force", "--state", str(self._state), str(self._config)]
        subprocess.run(command, check=True, timeout=60)


@pytest.mark.parametrize(
    "options",
    [("create",), ("create", "compress", "delaycompress"), ("create", "compress"), ("nocreate",)],
    ids=" ".join,
)
def test_counts_are_exact_while_logrotate_renames_and_the_exporter_is_killed(
    options: tuple[str, ...], log: Path, writer: LogWriter, moments: random.Random
) -> None:
    rotate = Logrotate(log, *options)
    packs_at_once = "compress" in options and "delaycompress" not in options
    with Exporter(config(log)) as exporter:
        with Writer(writer.write, RATE) as written:
            wait_for("a commit", lambda: exporter.scrape().value("kvexporter_journal_lag_seconds") is not None)
            time.sleep(2.5)
            for _ in range(KILLS):
                if not packs_at_once:  # else what is written between packing and reopening is lost to everybody
                    for _ in range(moments.randrange(1, 3)):
                        rotate()
                        time.sleep(0.2 * moments.random())
                        writer.reopen()
                        wait_for("the new file", lambda: log.exists() and log.stat().st_size)
                time.sleep(moments.choice((0.3, 0.8, 2.5)) * moments.random())
                exporter.kill()
                exporter.launch()
        if packs_at_once:
            for _ in range(3):
                exporter.kill()
                rotate()
                writer.reopen()
                for run in runs():
                    writer.write(run)
                    written.expected += count(run)
                time.sleep(0.5)
                exporter.launch()
        exporter.wait_ready(60)
        wait_counted(exporter.scrape, written.expected)
    assert written.lines > KILLS * 100


def test_counts_are_exact_while_logrotate_copies_and_empties_and_the_exporter_is_killed(
    log: Path, writer: LogWriter, moments: random.Random
) -> None:
    rotate = Logrotate(log, "copytruncate", "compress", "delaycompress")
    with Exporter(config(log)) as exporter:
        expected = count([])
        for life in range(KILLS):
            for run in runs():
                writer.write(run)
                expected += count(run)
            if life == 0:
                wait_counted(exporter.scrape, expected)
            # Written while it is copied could be lost to everybody.
            wait_for("all to be written", settled(log))
            if moments.random() < 0.7:
                rotate()
            time.sleep(moments.random())
            exporter.kill()
            exporter.launch()
        exporter.wait_ready(60)
        wait_counted(exporter.scrape, expected)


def counts_of_runs() -> Counter[Series]:
    return sum((count(run) for run in runs()), Counter[Series]())


def settled(path: Path) -> Any:
    """Whether a file does not grow any more."""
    sizes = [-1]

    def look() -> bool:
        sizes.append(path.stat().st_size)
        time.sleep(0.2)
        return sizes[-1] == sizes[-2] == path.stat().st_size

    return look


def test_a_log_that_is_piped_in_needs_no_configuration_and_its_end_is_said(log: Path) -> None:
    source, sink = os.pipe()
    lines = [line for run in runs() for line in run]
    with Exporter(None, "--log.stdin", "--name=s", "--url=http://127.0.0.1:9", stdin=source) as exporter:
        os.close(source)
        for first in range(0, len(lines), 50):
            os.write(sink, "".join(line + "\n" for line in lines[first : first + 50]).encode())
        wait_counted(exporter.scrape, counts_of_runs())
        os.close(sink)
        exporter.wait_value(0, "kvexporter_collector_success", collector="journal")
        assert "standard input has ended" in exporter.log()
        wait_counted(exporter.scrape, counts_of_runs())


def test_many_folders_of_logs_share_a_few_processes_and_each_is_counted(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(3 * MOST_READERS)]
    text = "".join(line + "\n" for run in runs() for line in run)
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "log").write_text(text)

    def described(chosen: Sequence[str]) -> dict[str, Any]:
        servers = [
            {"name": name, "url": f"http://127.0.0.1:{number}", "log": {"file": str(tmp_path / name / "log")}}
            for number, name in enumerate(chosen, 9)
        ]
        return {"discovery": False, "servers": servers}

    died = counts_of_runs()[series("llama_context_exceeded_requests_total", cause="pool")]
    with Exporter(described(names)) as exporter:
        for name in names:
            exporter.wait_value(died, "llama_context_exceeded_requests_total", cause="pool", server=name)
        children = Path(f"/proc/{exporter.pid}/task/{exporter.pid}/children")
        assert len(children.read_text().split()) == MOST_READERS
        # Some of them go: those that share a process with them are read on.
        left = names[MOST_READERS:]
        exporter.config_file.write_text(yaml.safe_dump(described(left)))
        os.kill(exporter.pid, signal.SIGHUP)
        exporter.wait_absent("llama_up", server=names[0])
        for name in left:
            with (tmp_path / name / "log").open("a") as log:
                log.write(text)
        for name in left:
            exporter.wait_value(2 * died, "llama_context_exceeded_requests_total", cause="pool", server=name)


def test_a_log_file_needs_no_configuration_and_names_its_server(log: Path) -> None:
    lines = [line for run in runs() for line in run]
    log.with_name("s.log").write_text("".join(line + "\n" for line in lines))
    with Exporter(None, f"--log.file={log.with_name('s.log')}", "--url=http://127.0.0.1:9") as exporter:
        wait_counted(exporter.scrape, counts_of_runs())


@pytest.mark.real_server
def test_the_real_servers_log_file_is_counted_over_its_restart(log: Path) -> None:
    arguments = ("-c", "2048", "-np", "4", "--kv-unified", "--log-file", str(log))
    with RealLlamaServer(*arguments) as server:
        entry = {"name": "s", "url": server.url, "log": {"file": str(log)}}
        with Exporter({"discovery": False, "servers": [entry]}) as exporter:
            died = sum(reply.status != 200 for reply in server.overflow(2048))
            assert died
            exporter.wait_value(died, "llama_context_exceeded_requests_total", cause="pool", server="s")
            assert exporter.scrape().value("kvexporter_journal_gaps_total") == 0
            checked = subprocess.run(
                [sys.executable, "-m", "kvexporter", "check", "--config.file", str(exporter.config_file)],
                capture_output=True, text=True, timeout=60, check=False,
            ).stdout  # fmt: skip
            assert f"its log can be read (log file {log}" in checked
            assert "it empties its --log-file at each start" in checked

            server.stop()
            server.start()  # empties the file, which holds what only a reader in time has seen
            died += sum(reply.status != 200 for reply in server.overflow(2048))
            exporter.wait_value(died, "llama_context_exceeded_requests_total", cause="pool", server="s")
            exporter.wait_value(1, "kvexporter_journal_gaps_total")
            assert "it was emptied, and no copy of what it held was found" in exporter.log()
