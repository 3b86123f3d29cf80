"""The whole exporter behind TLS, client certificates and a password, scraped by the real Prometheus."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from tests.support.certificates import Authority, make_server_files
from tests.support.exporter import Exporter
from tests.support.paths import wait_for
from tests.support.prometheus import Prometheus
from tests.support.web_server import ALICE, TLS

VERIFIED = "  client_ca_file: ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n"

NOTHING_TO_FIND = {"servers": [{"name": "none", "url": "http://127.0.0.1:9"}]}


class SecureExporter(Exporter):
    """An exporter whose web configuration is `folder`/web.yml, asked over TLS as alice with a certificate."""

    def __init__(self, folder: Path) -> None:
        super().__init__(NOTHING_TO_FIND, "--storage.path=", "--web.config.file", str(folder / "web.yml"))
        self.folder = folder
        self.url = self.url.replace("http://127.0.0.1", "https://localhost")

    def __enter__(self) -> SecureExporter:
        super().__enter__()
        return self

    def get(self, path: str) -> httpx.Response:
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        context.load_cert_chain(self.folder / "client.crt", self.folder / "client.key")
        with httpx.Client(verify=context, trust_env=False, timeout=10, auth=("alice", "fakepassword")) as client:
            return client.get(self.url + path)

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the exporter ended with exit status {self._process.returncode}")
        try:
            return self.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_server_files(tmp_path / "web")


@pytest.fixture
def folder(authority: Authority) -> Path:
    folder = authority.folder
    authority.sign("client", client=True)
    (folder / "web.yml").write_text(TLS + VERIFIED + ALICE)
    (folder / "password").write_text("fakepassword")
    return folder


def test_prometheus_scrapes_over_tls_with_certificate_and_password_also_over_a_renewal(
    folder: Path, authority: Authority
) -> None:
    scrape = {
        "scheme": "https",
        "tls_config": {
            "ca_file": str(folder / "ca.crt"),
            "cert_file": str(folder / "client.crt"),
            "key_file": str(folder / "client.key"),
            "server_name": "localhost",
        },
        "basic_auth": {"username": "alice", "password_file": str(folder / "password")},
    }
    with (
        SecureExporter(folder) as exporter,
        Prometheus(folder.parent / "prometheus", {"kvexporter": exporter.address}, scrape=scrape) as prometheus,
    ):
        wait_for("a scrape", lambda: prometheus.value('up{job="kvexporter"}') == 1)
        assert prometheus.query("kvexporter_build_info")
        # A new certificate of the same authority: no scrape is lost.
        scrapes = 'count_over_time(up{job="kvexporter"}[10m])'
        before = prometheus.value(scrapes) or 0
        authority.sign("server", "DNS:localhost", "IP:127.0.0.1")
        wait_for("more scrapes", lambda: (prometheus.value(scrapes) or 0) >= before + 3)
        assert prometheus.value('min_over_time(up{job="kvexporter"}[10m])') == 1
        assert exporter.get("/-/healthy").status_code == 200
        # A password that is no longer right: the next scrape is refused.
        (folder / "web.yml").write_text(TLS + VERIFIED + ALICE.replace("alice", "carol"))
        wait_for("a refused scrape", lambda: prometheus.value('up{job="kvexporter"}') == 0)
        log = exporter.log()
    assert "web configuration read anew" in log
    assert "fakepassword" not in log
