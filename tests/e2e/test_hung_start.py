"""A configuration on a disk that really hangs: the start says which file it waits for, and goes on or ends when it can.

See tests/support/hanging_disk.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from kvexporter.reading_at_start import WORD_SECONDS
from tests.support.beside_hanging import COUNT, config, end, line, notified, wait_held, with_journal
from tests.support.certificates import make_server_files
from tests.support.exporter import Exporter
from tests.support.hanging_disk import HangingDisk, hanging_disk
from tests.support.journal_files import LiveJournalFile
from tests.support.paths import wait_for

HANGS = "its disk or network does not answer: waiting for it"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[HangingDisk]:
    with hanging_disk(tmp_path / "hanging") as made:
        yield made


@pytest.fixture
def good(tmp_path: Path) -> Iterator[LiveJournalFile]:
    """The journal of a server whose disk is well."""
    with LiveJournalFile(tmp_path / "good", unit="good.service") as journal:
        journal.write(line(0))
        yield journal


@contextmanager
def launched(exporter: Exporter) -> Iterator[Exporter]:
    """The exporter, which hangs in its start."""
    exporter.launch()
    try:
        yield exporter
    finally:
        exporter.__exit__(None, None, None)


def wait_told(exporter: Exporter, file: Path) -> None:
    wait_for(f"{file} to be told", lambda: f"{file}: {HANGS}" in exporter.log(), WORD_SECONDS + 60)


def test_a_start_says_which_configuration_it_waits_for_and_goes_on_when_its_disk_does(
    disk: HangingDisk, good: LiveJournalFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.path / "kvexporter.yml"
    file.write_text(yaml.safe_dump(config(with_journal(good))))
    disk.hang()
    with (
        notified(tmp_path, monkeypatch) as notify,
        launched(Exporter(None, "--config.file", str(file))) as exporter,
    ):
        wait_told(exporter, file)
        # For `systemctl status`, and not that it has started.
        assert notify.recv(4096).decode().startswith(f"STATUS={file}: {HANGS}")
        time.sleep(WORD_SECONDS)
        assert exporter.log().count(HANGS) == 1
        disk.go_on()
        exporter.wait_value(1, COUNT, server="good")
        assert notify.recv(4096).startswith(b"READY=1\n")


def test_a_start_that_waits_for_a_certificate_of_the_web_configuration_names_it(
    disk: HangingDisk, good: LiveJournalFile, tmp_path: Path
) -> None:
    make_server_files(disk.path)
    file = tmp_path / "web.yml"
    text = f"tls_server_config: {{cert_file: {disk.path / 'server.crt'}, key_file: {disk.path / 'server.key'}}}\n"
    file.write_text(text)
    disk.hang()
    with launched(Exporter(config(with_journal(good)), "--web.config.file", str(file))) as exporter:
        wait_told(exporter, disk.path / "server.crt")
        disk.go_on()
        wait_for("it to go on", lambda: "watching good" in exporter.log())


@pytest.mark.parametrize("unkillable", [False, True], ids=["as NFS", "as a local disk"])
def test_a_start_that_waits_for_its_configuration_ends_when_told(disk: HangingDisk, unkillable: bool) -> None:
    file = disk.path / "kvexporter.yml"
    file.write_text("servers: [{url: 'http://127.0.0.1:9'}]\n")
    disk.hang(unkillable=unkillable)
    with launched(Exporter(None, "--config.file", str(file))) as exporter:
        wait_held(exporter.pid)
        wait_told(exporter, file)
        end(exporter, disk)


@pytest.mark.parametrize(
    ("words", "sent", "status"),
    [
        (("run", "--config.check"), signal.SIGTERM, 128 + signal.SIGTERM),
        (("check",), signal.SIGINT, 130),
        (("plan", "--p95", "1000"), signal.SIGTERM, 128 + signal.SIGTERM),
        (("verify",), signal.SIGINT, 130),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_command_says_which_configuration_it_waits_for_and_ends_when_told(
    disk: HangingDisk, tmp_path: Path, words: tuple[str, ...], sent: signal.Signals, status: int
) -> None:
    file = disk.path / "kvexporter.yml"
    file.write_text("servers: [{url: 'http://127.0.0.1:9'}]\n")
    disk.hang()
    command = [sys.executable, "-m", "kvexporter", *words, "--config.file", str(file)]
    said = tmp_path / "stderr"
    with said.open("wb") as stderr, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr) as process:
        try:
            wait_for("it to be told", lambda: f"kvexporter: {file}: {HANGS}" in said.read_text(), WORD_SECONDS + 60)
            os.kill(process.pid, sent)
            assert process.wait(30) == status
        finally:
            process.kill()
    assert "Traceback" not in said.read_text()


def test_a_verification_waits_for_its_configuration_no_longer_than_its_deadline(disk: HangingDisk) -> None:
    file = disk.path / "kvexporter.yml"
    file.write_text("servers: [{url: 'http://127.0.0.1:9'}]\n")
    disk.hang()
    command = [sys.executable, "-m", "kvexporter", "verify", "--deadline", "1", "--config.file", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == f"kvexporter: {file}: its disk or network does not answer: not read within 1 s\n"
