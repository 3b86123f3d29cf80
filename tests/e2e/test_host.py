"""A whole host: systemd, journald, a llama-server unit and the kvexporter unit as shipped, with no configuration."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.llama_server import Client, Request, llama_server_binary
from tests.support.paths import ROOT, free_port, wait_for
from tests.support.real_systemd import RealSystemd, installed_tree
from tests.support.scrape import Scrape, scrape, wait_value
from tests.support.tiny_model import tiny_model

pytestmark = [pytest.mark.real_systemd, pytest.mark.real_server]

PORT = free_port()
URL = f"http://127.0.0.1:{PORT}"
SERVER = "llama-server"
"""The label that a discovered unit gets: its name."""


@pytest.fixture(scope="module")
def llama() -> Client:
    return Client(free_port())


@pytest.fixture(scope="module")
def host(llama: Client) -> Iterator[RealSystemd]:
    binary = llama_server_binary()
    binds = {
        **installed_tree(),
        "/opt/llama": binary.parent,
        "/opt/model/tiny.gguf": tiny_model(),
    }
    server = f"""\
        [Service]
        DynamicUser=yes
        Environment=LD_LIBRARY_PATH=/opt/llama
        ExecStart=/opt/llama/{binary.name} -m /opt/model/tiny.gguf -c 4096 -np 4 -kvu --port {llama.port} -t 1
        Restart=always
        RestartSec=100ms
        """
    units = {"llama-server.service": server, "kvexporter.service": (ROOT / "packaging/kvexporter.service").read_text()}
    options = {"default/kvexporter": f"KVEXPORTER_OPTS=--web.listen-address=127.0.0.1:{PORT}\n"}
    with RealSystemd(units, etc=options, binds=binds) as host:
        host.start("llama-server.service")
        host.start("kvexporter.service")
        try:
            llama.wait_ready()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{host.journal('llama-server.service')}") from None
        yield host


def wait_shown(host: RealSystemd, expected: float, name: str, **labels: str) -> Scrape:
    try:
        return wait_value(URL, expected, name, 30, server=SERVER, **labels)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{host.journal('kvexporter.service')}\n{scrape(URL).text}") from None


def test_an_installed_exporter_finds_the_unit_reads_its_journal_and_counts_its_victims(
    host: RealSystemd, llama: Client
) -> None:
    wait_shown(host, 1, "llama_up")
    shown = wait_shown(host, 4, "llama_kv_pool_overcommit_ratio")
    assert shown.value("kvexporter_collector_success", collector="journal") == 1
    assert shown.value("llama_process_resident_memory_bytes", server=SERVER) is not None
    before = shown.value("llama_context_exceeded_requests_total", server=SERVER, cause="pool")
    assert before is not None

    statuses = [answer.status for answer in llama.complete_all([Request(900, 400, seed) for seed in range(4)])]

    assert statuses == [500] * 4
    wait_shown(host, before + 4, "llama_context_exceeded_requests_total", cause="pool")


def test_a_crash_of_the_server_is_counted_and_its_next_process_followed(host: RealSystemd, llama: Client) -> None:
    unit = "llama-server.service"
    wait_shown(host, 1, "llama_up")
    restarts = int(host.property(unit, "NRestarts"))
    old = host.property(unit, "MainPID")

    host.run("kill", "-SEGV", old)

    wait_for("systemd to start it again", lambda: host.property(unit, "MainPID") not in ("0", old))
    llama.wait_ready()
    shown = wait_shown(host, restarts + 1, "llama_unit_restarts_total")
    assert sum(value for _, value in shown.all("llama_unit_exits_total", server=SERVER)) >= 1
    wait_shown(host, 1, "llama_up")
    started = host.run("stat", "-c", "%Y", f"/proc/{host.property(unit, 'MainPID')}").stdout
    wait_shown(host, 4, "llama_kv_pool_overcommit_ratio")
    process_start = wait_for(
        "its process to be seen", lambda: scrape(URL).value("llama_process_start_time_seconds", server=SERVER), 30
    )
    assert process_start is not None
    assert abs(process_start - float(started)) < 60


def test_the_exporter_s_own_log_is_quiet_and_its_page_answers(host: RealSystemd) -> None:
    wait_shown(host, 1, "llama_up")
    page = httpx.get(f"{URL}/", trust_env=False)
    assert page.status_code == 200
    assert SERVER in page.text
    assert "Traceback" not in host.journal("kvexporter.service")


def test_a_server_that_logs_to_a_file_has_no_counts_of_its_log_and_is_named(host: RealSystemd, llama: Client) -> None:
    unit = host.run("cat", "/etc/systemd/system/llama-server.service").stdout
    port = free_port()
    host.write(
        "/etc/systemd/system/filed.service",
        unit.replace(f"--port {llama.port}", f"--port {port}") + "StandardOutput=append:/tmp/filed.log\n",
    )
    host.systemctl("daemon-reload")
    host.start("filed.service")
    wait_value(URL, 1, "llama_up", 30, server="filed")
    shown = wait_value(URL, 0, "llama_unit_restarts_total", 30, server="filed")
    assert not shown.all("llama_context_exceeded_requests_total", server="filed")
    checked = host.run("/opt/kvexporter/bin/kvexporter", "check", check=False).stdout
    assert "nothing of llama-server itself" in checked
    host.systemctl("stop", "filed.service")
    wait_value(URL, 0, "llama_up", 30, server="filed")
    wait_for("the outage to be said", lambda: "filed is down" in host.journal("kvexporter.service"), 30)
