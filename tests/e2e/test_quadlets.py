"""Containers as Podman's quadlets run them, and who stops them: found, read and counted without configuration.

The containers are made here as Podman makes them (control groups, who writes to the journal, another id at each start),
because Podman itself does not run inside of this host.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.llama_server import Client, Request, llama_server_binary
from tests.support.paths import ROOT, free_port, wait_for
from tests.support.real_systemd import RealSystemd, installed_tree
from tests.support.scrape import Scrape, scrape, wait_value
from tests.support.tiny_model import tiny_model

pytestmark = [pytest.mark.real_systemd, pytest.mark.real_server]

PORT = free_port()
URL = f"http://127.0.0.1:{PORT}"

PASSED, MONITORED = "passed", "monitored"
"""The container's output is the unit's own (LogDriver=passthrough); or its monitor writes it (LogDriver=journald)."""

POD = "pod"
"""A pod's container has a scope of its own, and its output is that of the unit that started the pod."""

RUN = r"""#!/bin/sh
# podman run --cgroups=split: the container and its monitor in control groups of their own below the unit's.
set -e
driver=$1; shift
id=$(tr -d '\n-' </proc/sys/kernel/random/uuid)$(tr -d '\n-' </proc/sys/kernel/random/uuid)
if [ "$driver" = pod ]; then
  exec systemd-run --quiet --scope --unit="libpod-$id.scope" "$@"
fi
group=/sys/fs/cgroup/systemd$(sed -n 's/^[0-9]*:name=systemd://p' /proc/self/cgroup)
test -d /sys/fs/cgroup/systemd || group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
mkdir -p "$group/runtime" "$group/libpod-payload-$id"
if [ "$driver" = monitored ]; then
  mkfifo "/run/$id"
  (
    sh -c 'echo $PPID' >"$group/runtime/cgroup.procs"
    exec /opt/kvexporter/bin/run-python /mnt/test/etc/conmon.py "$id" <"/run/$id"
  ) &
  exec >"/run/$id" 2>&1
fi
echo $$ >"$group/libpod-payload-$id/cgroup.procs"
exec "$@"
"""

CONMON = """
import sys
from systemd import journal
for line in sys.stdin:
    journal.send(line.rstrip(), CONTAINER_ID_FULL=sys.argv[1], CONTAINER_ID=sys.argv[1][:12], CONTAINER_NAME="llama")
"""


@pytest.fixture(scope="module")
def llamas() -> dict[str, Client]:
    return {name: Client(free_port()) for name in (PASSED, MONITORED, POD)}


@pytest.fixture(scope="module")
def host(llamas: dict[str, Client]) -> Iterator[RealSystemd]:
    binary = llama_server_binary()
    binds = {**installed_tree(), "/opt/llama": binary.parent, "/opt/model/tiny.gguf": tiny_model()}
    units = {"kvexporter.service": (ROOT / "packaging/kvexporter.service").read_text()}
    for name, client in llamas.items():
        units[f"{name}.service"] = f"""\
            [Service]
            Delegate=yes
            Environment=LD_LIBRARY_PATH=/opt/llama
            ExecStart=/bin/sh /mnt/test/etc/run {name} /opt/llama/{binary.name} -m /opt/model/tiny.gguf \\
                -c 4096 -np 4 -kvu --port {client.port} -t 1
            Restart=on-failure
            RestartSec=100ms
            """
    etc = {
        "default/kvexporter": f"KVEXPORTER_OPTS=--web.listen-address=127.0.0.1:{PORT}\n",
        "run": RUN,
        "conmon.py": CONMON,
    }
    with RealSystemd(units, etc=etc, binds=binds) as host:
        for name, client in llamas.items():
            host.start(f"{name}.service")
            try:
                client.wait_ready()
            except AssertionError as error:
                raise AssertionError(f"{error}\n{host.journal(f'{name}.service')}") from None
        host.start("kvexporter.service")
        yield host


each = pytest.mark.parametrize("name", [PASSED, MONITORED])


def wait_shown(host: RealSystemd, server: str, expected: float, metric: str, **labels: str) -> Scrape:
    try:
        return wait_value(URL, expected, metric, 60, server=server, **labels)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{host.journal('kvexporter.service')}\n{scrape(URL).text}") from None


def died(server: str) -> float:
    return scrape(URL).value("llama_context_exceeded_requests_total", server=server, cause="pool") or 0.0


@each
def test_a_quadlet_is_the_server_of_its_unit_and_counted_on_after_a_crash_with_another_container(
    host: RealSystemd, llamas: dict[str, Client], name: str
) -> None:
    unit, client = f"{name}.service", llamas[name]
    wait_shown(host, name, 1, "llama_up")
    before, restarts = died(name), scrape(URL).value("llama_unit_restarts_total", server=name) or 0.0
    assert [answer.status for answer in client.complete_all([Request(900, 400, seed) for seed in range(4)])] == [
        500
    ] * 4
    wait_shown(host, name, before + 4, "llama_context_exceeded_requests_total", cause="pool")

    old = host.property(unit, "MainPID")
    first = host.run("cat", f"/proc/{old}/cgroup").stdout
    assert f"/{unit}/libpod-payload-" in first
    host.run("kill", "-SEGV", old)
    wait_for("systemd to start it again", lambda: host.property(unit, "MainPID") not in ("0", old))
    client.wait_ready()
    assert host.run("cat", f"/proc/{host.property(unit, 'MainPID')}/cgroup").stdout != first

    wait_shown(host, name, restarts + 1, "llama_unit_restarts_total")
    wait_shown(host, name, 1, "llama_up")
    assert [answer.status for answer in client.complete_all([Request(900, 400, seed) for seed in range(4)])] == [
        500
    ] * 4
    shown = wait_shown(host, name, before + 8, "llama_context_exceeded_requests_total", cause="pool")
    assert shown.value("llama_unit_stopped_on_request", server=name) == 0
    assert {labels["unit"] for labels, _ in shown.all("llama_server_info", server=name)} == {unit}
    pod = f"127.0.0.1:{llamas[POD].port}"
    assert {labels["server"] for labels, _ in shown.all("llama_up")} == {PASSED, MONITORED, pod}


def test_a_pods_container_is_followed_by_its_scope(host: RealSystemd, llamas: dict[str, Client]) -> None:
    client = llamas[POD]
    server = f"127.0.0.1:{client.port}"
    group = host.run("cat", f"/proc/{host.property('pod.service', 'MainPID')}/cgroup").stdout
    assert "/libpod-" in group
    assert "pod.service" not in group
    wait_shown(host, server, 1, "llama_up")
    before = died(server)
    assert [answer.status for answer in client.complete_all([Request(900, 400, seed) for seed in range(4)])] == [
        500
    ] * 4
    wait_shown(host, server, before + 4, "llama_context_exceeded_requests_total", cause="pool")


@each
def test_a_server_that_is_stopped_is_told_from_one_that_fails_and_over_a_restart_of_the_exporter(
    host: RealSystemd, llamas: dict[str, Client], name: str
) -> None:
    unit = f"{name}.service"
    wait_shown(host, name, 1, "llama_up")
    host.systemctl("stop", unit)
    wait_shown(host, name, 0, "llama_up")
    wait_shown(host, name, 1, "llama_unit_stopped_on_request")
    host.start("kvexporter.service")
    wait_shown(host, name, 0, "llama_up")
    wait_shown(host, name, 1, "llama_unit_stopped_on_request")

    # Changed while it was stopped, and started with a mistake.
    host.run("mkdir", "-p", f"/etc/systemd/system/{unit}.d")
    host.write(f"/etc/systemd/system/{unit}.d/broken.conf", "[Service]\nExecStart=\nExecStart=/bin/sh -c 'exit 127'\n")
    host.systemctl("daemon-reload")
    host.systemctl("start", unit, check=False)
    wait_shown(host, name, 0, "llama_unit_stopped_on_request")
    assert scrape(URL).value("llama_up", server=name) == 0

    host.run("rm", f"/etc/systemd/system/{unit}.d/broken.conf")
    host.systemctl("daemon-reload")
    host.systemctl("reset-failed", unit, check=False)
    host.start(unit)
    llamas[name].wait_ready()
    wait_shown(host, name, 1, "llama_up")
    assert scrape(URL).value("llama_unit_stopped_on_request", server=name) == 0
