"""A change to a unit and its check, as a deploy script makes them: under a real systemd, from the real journal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.llama_server import Client, llama_server_binary
from tests.support.paths import free_port
from tests.support.real_systemd import RealSystemd, installed_tree
from tests.support.tiny_model import tiny_model

pytestmark = [pytest.mark.real_systemd, pytest.mark.real_server]

KVEXPORTER = "/opt/kvexporter/bin/kvexporter"


@pytest.fixture(scope="module")
def llama() -> Client:
    return Client(free_port())


@pytest.fixture(scope="module")
def host(llama: Client) -> Iterator[RealSystemd]:
    binary = llama_server_binary()
    binds = {**installed_tree(), "/opt/llama": binary.parent, "/opt/model/tiny.gguf": tiny_model()}
    unit = f"""\
        [Service]
        DynamicUser=yes
        Environment=LD_LIBRARY_PATH=/opt/llama
        EnvironmentFile=-/etc/default/llama-server
        ExecStart=/opt/llama/{binary.name} -m /opt/model/tiny.gguf --port {llama.port} -t 1 $POOL
        """
    etc = {"default/llama-server": 'POOL="-c 4096 -np 4 -kvu"\n'}
    with RealSystemd({"llama-server.service": unit}, etc=etc, binds=binds) as host:
        host.start("llama-server.service")
        yield host


def verify(host: RealSystemd, *arguments: str) -> tuple[int, str]:
    # At once after the restart: it waits until the server answers.
    done = host.run(KVEXPORTER, "verify", "--unit", "llama-server", *arguments, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_a_restart_is_verified_from_its_log_and_a_change_is_noticed(host: RealSystemd) -> None:
    status, said = verify(host, "--expect-window", "4096", "--expect-slots", "4", "--expect-pool", "4096")
    assert status == 1, said
    assert "only 1,024 tokens are sure for each" in said

    change = "-c 4096 -np 4 -kvu --kv-unified-per-slot 1024"
    host.run("sh", "-c", f"echo 'POOL=\"{change}\"' > /etc/default/llama-server")
    host.systemctl("restart", "llama-server.service")
    status, said = verify(host, "--expect-window", "1024", "--expect-slots", "4", "--expect-pool", "4096")
    assert status == 0, said
    assert "pool: 4,096, as expected" in said
    assert "its log is not read" not in said


def test_a_plan_is_made_from_the_hosts_own_journal(host: RealSystemd, llama: Client) -> None:
    llama.wait_ready()
    for prompt in (100, 200, 300):
        assert llama.complete(prompt, 10).status == 200
    host.run("journalctl", "--sync")
    done = host.run(KVEXPORTER, "plan", "--unit", "llama-server", "--format", "json", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"pool_capacity_tokens": 4096' in done.stdout
    assert '"kv_bytes_per_token": 512.0' in done.stdout
    assert '"memory_bytes": null' not in done.stdout
