"""The shipped unit with TLS and a password whose files only root can read, under a real systemd."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from tests.support.certificates import make_server_files
from tests.support.paths import ROOT, free_port
from tests.support.real_systemd import RealSystemd, installed_tree
from tests.support.web_server import ALICE, TLS

pytestmark = pytest.mark.real_systemd

UNIT = "kvexporter.service"


def test_the_unit_takes_certificate_key_and_users_as_credentials(tmp_path: Path) -> None:
    make_server_files(tmp_path)
    port = free_port()
    unit = (ROOT / "packaging" / UNIT).read_text()
    # The lines of the unit's own comment, and the option that stands there.
    credentials = [line.lstrip("# ") for line in unit.splitlines() if line.startswith("#   LoadCredential=")]
    option = next(line.split(": ")[1] for line in unit.splitlines() if "--web.config.file=" in line)
    assert len(credentials) == 3
    etc = {
        f"systemd/system/{UNIT}.d/web.conf": "\n".join(["[Service]", *credentials]) + "\n",
        "default/kvexporter": (
            f'KVEXPORTER_OPTS="--config.file=/etc/kvexporter/kvexporter.yml {option} '
            f'--web.listen-address=127.0.0.1:{port}"\n'
        ),
        "kvexporter/kvexporter.yml": "servers: [{name: none, url: 'http://127.0.0.1:9'}]\n",
        "kvexporter/web.yml": TLS + ALICE,
        "kvexporter/server.crt": (tmp_path / "server.crt").read_text(),
        "kvexporter/server.key": (tmp_path / "server.key").read_text(),
    }
    with RealSystemd({UNIT: unit}, etc=etc, binds=installed_tree()) as host:
        for name in ("web.yml", "server.key"):
            host.run("chmod", "600", f"/etc/kvexporter/{name}")
        # As on a booted machine: systemd mounts credentials in a namespace of its own, and they come back this way.
        host.run("mount", "--make-rshared", "/")
        host.systemctl("daemon-reload")
        host.start(UNIT)
        context = ssl.create_default_context(cafile=tmp_path / "ca.crt")
        with httpx.Client(verify=context, trust_env=False, timeout=20) as client:
            url = f"https://localhost:{port}/metrics"
            assert client.get(url).status_code == 401
            assert client.get(url, auth=("alice", "fakepassword")).status_code == 200
        assert "fakepassword" not in host.journal(UNIT)
