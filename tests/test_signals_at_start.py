"""From its first moment on the exporter ends when told to, also as the first process of a container; SIGHUP waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from kvexporter.signals_at_start import runs_exporter
from tests.support.exporter import Exporter
from tests.support.paths import ROOT, wait_for

FIRST_PROCESS = ["unshare", "--pid", "--fork", "--kill-child"]


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def child_of(pid: int) -> int | None:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None


def wait_read(pipe: Path) -> int:
    """Wait until somebody reads a named pipe; the descriptor of its other end."""

    def opened() -> list[int] | None:
        try:
            return [os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)]
        except OSError:
            return None  # nobody does yet

    return wait_for(f"{pipe} to be read", opened)[0]


@contextmanager
def importing(folder: Path, *, first: bool) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The exporter, which hangs in its first import from elsewhere: what was started, and the exporter's PID.

    `first`: it is the first process of a PID namespace, as in a container.
    """
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    (folder / "click.py").write_text(f"open({str(pipe)!r}).read()\n")
    command = [*(FIRST_PROCESS if first else ()), sys.executable, "-m", "kvexporter"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        end = None
        try:
            end = wait_read(pipe)
            pid = wait_for("its process", lambda: child_of(process.pid)) if first else process.pid
            yield process, pid
        finally:
            process.kill()
            if end is not None:
                os.close(end)


@pytest.mark.parametrize("first", [False, True], ids=["as any process", "as the first process"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_while_it_is_being_loaded_it_ends_well(tmp_path: Path, number: signal.Signals, first: bool) -> None:
    with importing(tmp_path, first=first) as (process, pid):
        os.kill(pid, number)
        assert process.wait(30) == 0


def test_a_hang_up_while_it_is_being_loaded_does_not_end_it(tmp_path: Path) -> None:
    with importing(tmp_path, first=False) as (process, pid):
        os.kill(pid, signal.SIGHUP)
        assert catches(pid, signal.SIGHUP)
        os.kill(pid, signal.SIGTERM)
        assert process.wait(30) == 0  # not by SIGHUP, which came first


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_while_it_waits_for_its_configuration_it_ends_well(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "kvexporter.yml"
    os.mkfifo(file)
    exporter = Exporter(None, "--config.file", str(file))
    try:
        exporter.launch()
        end = wait_read(file)
        os.kill(exporter.pid, number)
        assert exporter.wait_end() == 0
        os.close(end)
        assert "msg=stopping" in exporter.log()
        assert "Traceback" not in exporter.log()
    finally:
        exporter.__exit__(None, None, None)


def test_a_hang_up_while_it_waits_for_its_configuration_has_it_read_again_once_it_runs(tmp_path: Path) -> None:
    file, before = tmp_path / "kvexporter.yml", tmp_path / "before"
    os.mkfifo(file)
    exporter = Exporter(None, "--config.file", str(file))
    try:
        exporter.launch()
        end = wait_read(file)
        file.rename(before)
        file.write_text(config("new"))
        os.kill(exporter.pid, signal.SIGHUP)
        with os.fdopen(end, "w") as pipe:
            pipe.write(config("old"))
        exporter.wait_ready()
        exporter.wait_value(0, "llama_up", server="new")
        assert exporter.log().count("configuration reloaded") == 1
        assert exporter.stop() == 0
    finally:
        exporter.__exit__(None, None, None)


def config(name: str) -> str:
    return yaml.safe_dump({"discovery": False, "servers": [{"name": name, "url": "http://127.0.0.1:9"}]})


@pytest.mark.parametrize(
    "line", ["", "run", "--log.level debug", "run --storage.path=", "--config.file kvexporter.yml --name x"]
)
def test_the_exporter_is_what_runs_with_or_without_its_name(line: str) -> None:
    assert runs_exporter(line.split())


@pytest.mark.parametrize(
    "line", ["--help", "-h", "--version", "check", "plan --p95 1000", "run --config.check", "demo"]
)
def test_every_other_command_keeps_the_usual_signals(line: str) -> None:
    assert not runs_exporter(line.split())
