"""The journal's move from /run to /var, and rotation and vacuum every second, under a real systemd and journald."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pytest
import yaml

from tests.support.counted_log import Writer, wait_counted
from tests.support.paths import free_port, wait_for
from tests.support.real_systemd import RealSystemd, installed_tree
from tests.support.scrape import Scrape, scrape

pytestmark = pytest.mark.real_systemd

PORT = free_port()
URL = f"http://127.0.0.1:{PORT}"
EXPORTER = "exporter.service"
STORE = "/var/lib/kvexporter/kvexporter.db"
SERVER = "llama-server.service"

UNITS = {
    # What is written to the pipe from outside leaves the unit as it came in, in bursts.
    SERVER: """\
        [Service]
        ExecStartPre=/bin/sh -c 'test -p /mnt/test/lines || mkfifo /mnt/test/lines'
        ExecStart=/bin/sh -c 'exec cat <>/mnt/test/lines'
        """,
    EXPORTER: f"""\
        [Service]
        Type=notify
        ExecStart=/opt/kvexporter/bin/kvexporter run --config.file=/mnt/test/kvexporter.yml \
            --web.listen-address=127.0.0.1:{PORT} --storage.path=/var/lib/kvexporter/kvexporter.db
        """,
}
ETC = {"systemd/journald.conf.d/limit.conf": "[Journal]\nRateLimitIntervalSec=0\n"}
CONFIG = {"discovery": False, "servers": [{"name": "s", "unit": SERVER, "url": "http://127.0.0.1:9"}]}


@pytest.fixture(scope="module")
def booted() -> Iterator[RealSystemd]:
    with RealSystemd(UNITS, etc=ETC, binds=installed_tree()) as host:
        (host.directory / "kvexporter.yml").write_text(yaml.safe_dump(CONFIG))
        yield host


@pytest.fixture
def host(booted: RealSystemd) -> Iterator[RealSystemd]:
    """A host whose journal is in /run and empty, with the server and the exporter running."""
    booted.run("sh", "-c", "journalctl --relinquish-var; rm -rf /var/log/journal /var/lib/kvexporter")
    booted.run("journalctl", "--rotate")
    booted.run("journalctl", "--vacuum-files=1")
    booted.start(SERVER)
    booted.start(EXPORTER)
    yield booted
    booted.systemctl("stop", EXPORTER, SERVER)


def pipe(host: RealSystemd) -> Callable[[Sequence[str]], None]:
    """Writes lines as the server's, a burst at a time."""
    path = host.directory / "lines"

    def write(lines: Sequence[str]) -> None:
        with path.open("wb", buffering=0) as fifo:
            fifo.write("".join(line + "\n" for line in lines).encode())

    return write


def counted(host: RealSystemd, writer: Writer) -> Scrape:
    try:
        return wait_counted(lambda: scrape(URL), writer.expected)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{host.journal(EXPORTER)}") from None


def make_persistent(host: RealSystemd) -> None:
    """Have journald move what is in /run to /var, and write there from now on."""
    host.run("mkdir", "-p", "/var/log/journal")
    host.run("journalctl", "--flush")
    host.run("sh", "-c", "ls /var/log/journal/*/system.journal && ! ls /run/log/journal/*/system.journal")


def make_volatile(host: RealSystemd) -> None:
    """Have journald write to /run from now on, as late in a shutdown; the next flush goes to a file known before."""
    host.run("journalctl", "--relinquish-var")


def test_a_flush_under_an_open_reader_changes_no_count(host: RealSystemd) -> None:
    with Writer(pipe(host), 2000) as writer:
        time.sleep(1)
        make_persistent(host)
        time.sleep(1)
        for _ in range(4):
            make_volatile(host)
            time.sleep(0.7)
            make_persistent(host)
            time.sleep(0.7)
    counted(host, writer)


def test_a_flush_while_the_exporter_is_down_changes_no_count(host: RealSystemd) -> None:
    with Writer(pipe(host), 2000) as writer:
        for _ in range(4):
            wait_for("something to be stored", lambda: host.run("test", "-s", STORE, check=False).returncode == 0)
            time.sleep(1.5)
            host.systemctl("kill", "-s", "KILL", EXPORTER)
            host.wait_state(EXPORTER, "failed")
            make_persistent(host)
            host.start(EXPORTER)
            make_volatile(host)
    counted(host, writer)


def test_a_flush_of_a_silent_servers_burst_delivers_nothing_again(host: RealSystemd) -> None:
    """All lines of the last burst have the same times: the case in which libsystemd itself cannot tell old from new."""
    writer = Writer(pipe(host), 1e6, burst=1000)
    with writer:
        time.sleep(0.2)
    counted(host, writer)
    for _ in range(3):
        make_persistent(host)
        time.sleep(1.2)
        make_volatile(host)
        time.sleep(1.2)
    counted(host, writer)


def test_rotation_and_vacuum_every_second_lose_nothing_and_leave_no_deleted_file_open(host: RealSystemd) -> None:
    make_persistent(host)
    files: set[str] = set()
    with Writer(pipe(host), 2000) as writer:
        for _ in range(15):
            host.run("journalctl", "--rotate")
            files.update(host.run("sh", "-c", "ls -i /var/log/journal/*").stdout.split("\n"))
            host.run("journalctl", "--vacuum-size=8M")
            time.sleep(0.8)
    counted(host, writer)
    left = host.run("sh", "-c", "ls -i /var/log/journal/*").stdout.split("\n")
    assert len(files - set(left)) >= 5, "the vacuum deleted next to nothing"
    pid = host.property(EXPORTER, "MainPID")
    held = f"ls -l /proc/{pid}/fd | grep 'journal.*(deleted)' || true"
    wait_for("deleted files to be let go", lambda: not host.run("sh", "-c", held).stdout, 60)
