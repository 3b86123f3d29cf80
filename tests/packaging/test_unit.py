"""The shipped systemd unit, under a real systemd, installed in /opt/kvexporter as its comments say."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from kvexporter.reports.check import AS_THE_SERVICE
from tests.support.paths import ROOT, free_port, wait_for
from tests.support.real_systemd import RealSystemd, installed_tree
from tests.support.scrape import scrape, wait_value

pytestmark = pytest.mark.real_systemd

UNIT = "kvexporter.service"
PORT = free_port()
URL = f"http://127.0.0.1:{PORT}"
DROP_IN = "/etc/systemd/system/kvexporter.service.d/test.conf"


def config(*servers: str) -> str:
    # Nothing listens at these addresses: a server that is down has series all the same.
    entries = "".join(f"  - {{name: {name}, url: 'http://127.0.0.1:9'}}\n" for name in servers)
    return f"discovery: false\nservers:\n{entries}"


@pytest.fixture(scope="module")
def host() -> Iterator[RealSystemd]:
    etc = {
        "default/kvexporter": (
            f'KVEXPORTER_OPTS="--config.file=/etc/kvexporter/kvexporter.yml --web.listen-address=127.0.0.1:{PORT}"\n'
        ),
        "kvexporter/kvexporter.yml": config("first"),
    }
    unit = (ROOT / "packaging" / UNIT).read_text()
    with RealSystemd({UNIT: unit}, etc=etc, binds=installed_tree()) as host:
        yield host


@pytest.fixture
def running(host: RealSystemd) -> Iterator[RealSystemd]:
    """The unit as shipped, started anew with its first configuration."""
    host.run("rm", "-f", DROP_IN)
    host.write("/etc/kvexporter/kvexporter.yml", config("first"))
    host.systemctl("daemon-reload")
    host.systemctl("reset-failed", UNIT, check=False)
    host.start(UNIT)
    yield host
    host.systemctl("stop", UNIT)


def add_drop_in(host: RealSystemd, text: str) -> None:
    host.run("mkdir", "-p", DROP_IN.rpartition("/")[0])
    host.write(DROP_IN, text)
    host.systemctl("daemon-reload")


def test_starting_the_unit_ends_when_the_exporter_answers(running: RealSystemd) -> None:
    assert running.property(UNIT, "ActiveState") == "active"
    assert httpx.get(f"{URL}/-/ready", trust_env=False).status_code == 200
    assert scrape(URL).all("kvexporter_build_info")


def test_it_runs_as_no_user_of_the_machine_and_may_read_the_journal(running: RealSystemd) -> None:
    pid = running.property(UNIT, "MainPID")
    uid = int(running.run("stat", "-c", "%u", f"/proc/{pid}").stdout)
    assert 61184 <= uid <= 65519, "systemd gives dynamic users these numbers"
    group = running.run("getent", "group", "systemd-journal").stdout.split(":")[2]
    assert group in running.run("grep", "Groups", f"/proc/{pid}/status").stdout.split()
    assert running.run("grep", "CapEff", f"/proc/{pid}/status").stdout.split()[1] == "0" * 16


def test_the_process_that_reads_journals_runs_in_the_sandbox_and_may_have_many_files_open(running: RealSystemd) -> None:
    running.write("/etc/kvexporter/kvexporter.yml", "discovery: false\nservers:\n- unit: llama-server.service\n")
    running.start(UNIT)
    wait_value(URL, 1, "kvexporter_collector_success", collector="journal")
    main = running.property(UNIT, "MainPID")
    (reading,) = running.run("cat", f"/proc/{main}/task/{main}/children").stdout.split()
    assert "kvexporter.reading" in running.run("cat", f"/proc/{reading}/cmdline").stdout
    limits = running.run("grep", "Max open files", f"/proc/{reading}/limits").stdout.split()
    soft, hard = limits[3:5]
    assert soft == hard
    assert int(soft) > 1024, "systemd's soft limit, which the files of ten units' journals can exceed"


def test_a_reload_takes_up_a_changed_configuration_without_a_restart(running: RealSystemd) -> None:
    wait_value(URL, 0, "llama_up", server="first")
    pid = running.property(UNIT, "MainPID")

    running.write("/etc/kvexporter/kvexporter.yml", config("first", "second"))
    running.systemctl("reload", UNIT)

    wait_value(URL, 0, "llama_up", server="second")
    assert running.property(UNIT, "MainPID") == pid


def test_a_reload_of_a_broken_configuration_keeps_the_old_one_and_says_where_it_is_broken(running: RealSystemd) -> None:
    wait_value(URL, 0, "llama_up", server="first")

    running.write("/etc/kvexporter/kvexporter.yml", "serverz: []\n")
    running.systemctl("reload", UNIT, check=False)

    wait_for("the error in the journal", lambda: "kvexporter.yml:1" in running.journal(UNIT))
    assert running.property(UNIT, "ActiveState") == "active"
    assert scrape(URL).value("llama_up", server="first") == 0


def stop_and_read_journal(host: RealSystemd) -> str:
    """Stop the unit; what the journal says about it. A stopped unit is forgotten, and its properties with it."""
    # Half of the unit's own limit: beyond it systemd kills, and says so.
    add_drop_in(host, "[Service]\nTimeoutStopSec=5\n")
    before = host.journal(UNIT)
    host.systemctl("stop", UNIT)
    return host.journal(UNIT).removeprefix(before)


def test_it_stops_at_once_and_cleanly(running: RealSystemd) -> None:
    said = stop_and_read_journal(running)
    assert f"{UNIT}: Deactivated successfully." in said
    assert "timed out" not in said


def test_an_open_scrape_connection_does_not_delay_the_stop(running: RealSystemd) -> None:
    with httpx.Client(trust_env=False) as client:
        client.get(f"{URL}/metrics").raise_for_status()
        said = stop_and_read_journal(running)
    assert f"{UNIT}: Deactivated successfully." in said
    assert "timed out" not in said


def test_the_sandbox_is_tight(running: RealSystemd) -> None:
    report = running.run("systemd-analyze", "security", "--no-pager", UNIT).stdout
    found = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", report)
    assert found, report
    assert float(found[1]) <= 2.0, report


def test_systemd_finds_nothing_wrong_with_the_unit(running: RealSystemd) -> None:
    done = running.run("systemd-analyze", "verify", "--no-pager", f"/etc/systemd/system/{UNIT}")
    assert done.stdout + done.stderr == ""


def test_the_watchdog_is_fed_and_a_frozen_exporter_is_started_again(running: RealSystemd) -> None:
    add_drop_in(running, "[Service]\nWatchdogSec=2\nRestartSec=100ms\nTimeoutAbortSec=1\n")
    running.start(UNIT)
    fed = {running.property(UNIT, "WatchdogTimestampMonotonic")}

    def fed_often() -> bool:
        fed.add(running.property(UNIT, "WatchdogTimestampMonotonic"))
        return len(fed) >= 4

    wait_for("the watchdog to be fed", fed_often)
    pid = running.property(UNIT, "MainPID")
    running.run("kill", "-STOP", pid)

    def started_again() -> bool:
        return running.property(UNIT, "NRestarts") != "0" and running.property(UNIT, "MainPID") not in ("0", pid)

    wait_for("the exporter to be started again", started_again, 60)
    assert "watchdog" in running.journal(UNIT).lower()
    running.wait_state(UNIT, "active")


def test_the_check_that_root_is_told_runs_as_the_units_own_user(running: RealSystemd) -> None:
    running.systemctl("start", "dbus.service")  # systemd-run needs it to pass on what the command prints
    pid = running.property(UNIT, "MainPID")
    uid = running.run("stat", "-c", "%u", f"/proc/{pid}").stdout
    assert running.run(*AS_THE_SERVICE, "id", "-u").stdout == uid

    command = ("/opt/kvexporter/bin/kvexporter", "check", "--config.file", "/etc/kvexporter/kvexporter.yml")
    done = running.run(*AS_THE_SERVICE, *command, check=False)

    assert done.returncode == 1, "nothing listens at the server's address"
    assert "first\n" in done.stdout, done.stdout + done.stderr
    # Neither is it root's check, nor is the service's store closed to it.
    assert "permission" not in done.stdout.lower()
    assert running.run("stat", "-c", "%a", "/var/lib/private/kvexporter").stdout.strip() == "700"
    assert running.property(UNIT, "MainPID") == pid
