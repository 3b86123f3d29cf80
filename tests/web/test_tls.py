"""TLS as real clients meet it: curl and openssl s_client against the server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.certificates import Authority, make_server_files
from tests.support.web_server import ALICE, TLS, RunningWeb

ECDSA_128, ECDSA_256 = "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"
VERIFIED = "  client_ca_file: ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    authority = make_server_files(folder)
    authority.sign("client", "DNS:prometheus.example", "IP:192.0.2.7", "IP:2001:db8::7", client=True)
    authority.sign("nameless", client=True)
    Authority(folder, "strange").sign("stranger", "DNS:prometheus.example", client=True)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "web")
    return tmp_path / "web"


def web(folder: Path, text: str) -> RunningWeb:
    (folder / "web.yml").write_text(text)
    return RunningWeb(folder / "web.yml")


def trusting(folder: Path, client: str | None = None) -> list[str | Path]:
    """curl's options to trust the server, and to show a certificate."""
    shown: list[str | Path] = []
    if client is not None:
        shown = ["--cert", folder / f"{client}.crt", "--key", folder / f"{client}.key"]
    return ["--cacert", folder / "ca.crt", *shown]


def test_curl_gets_the_metrics_over_tls(folder: Path) -> None:
    with web(folder, TLS) as running:
        status, text = running.curl(*trusting(folder))
        assert status == 200
        assert 'llama_slots{server="main"} 4\n' in text


def test_plain_http_gets_nothing_from_a_tls_port(folder: Path) -> None:
    with web(folder, TLS) as running:
        status, text = running.curl(scheme="http")
        assert status == 0
        assert "llama" not in text
        assert running.curl(*trusting(folder))[0] == 200


def test_tls_gets_nothing_from_a_plain_port(folder: Path) -> None:
    with web(folder, "") as running:
        assert running.curl(*trusting(folder))[0] == 0
        assert running.curl(scheme="http")[0] == 200


@pytest.mark.parametrize(
    ("settings", "version", "spoken"),
    [
        ("", "-tls1_2", True),
        ("", "-tls1_3", True),
        ("", "-tls1_1", False),
        ("  min_version: TLS10\n", "-tls1_1", False),
        ("  min_version: TLS13\n", "-tls1_2", False),
        ("  min_version: TLS13\n", "-tls1_3", True),
        ("  max_version: TLS12\n", "-tls1_3", False),
        ("  cipher_suites: [TLS_AES_128_GCM_SHA256]\n", "-tls1_2", False),
        ("  cipher_suites: [TLS_AES_128_GCM_SHA256]\n", "-tls1_3", True),
    ],
)
def test_only_the_versions_of_the_file_are_spoken(folder: Path, settings: str, version: str, spoken: bool) -> None:
    with web(folder, TLS + settings) as running:
        said = running.s_client(version, "-cipher", "ALL:@SECLEVEL=0", "-CAfile", folder / "ca.crt")
        assert ("Verify return code: 0 (ok)" in said and "Cipher is (NONE)" not in said) == spoken, said


@pytest.mark.parametrize(
    ("settings", "offered", "chosen"),
    [
        ("[TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]", f"{ECDSA_128}:{ECDSA_256}", ECDSA_256),
        ("[TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]", ECDSA_128, "(NONE)"),
        (
            "[TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]",
            f"{ECDSA_128}:{ECDSA_256}",
            ECDSA_256,
        ),
        (
            "[TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]\n"
            "  prefer_server_cipher_suites: false",
            f"{ECDSA_128}:{ECDSA_256}",
            ECDSA_128,
        ),
    ],
)
def test_the_suite_is_one_of_the_file_in_the_order_of_whom_it_says(
    folder: Path, settings: str, offered: str, chosen: str
) -> None:
    with web(folder, f"{TLS}  cipher_suites: {settings}\n") as running:
        assert f"Cipher is {chosen}" in running.s_client("-tls1_2", "-cipher", offered)


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_only_the_curve_of_the_file_is_used(folder: Path, version: str) -> None:
    # The certificate's own curve must be offered in any case.
    with web(folder, f"{TLS}  curve_preferences: [CurveP521, X25519]\n") as running:
        assert "ECDH, secp521r1" in running.s_client(version, "-groups", "X25519:P-521:P-256")
        assert "Cipher is (NONE)" in running.s_client(version, "-groups", "X25519:P-256")


def test_renegotiation_is_refused(folder: Path) -> None:
    with web(folder, TLS) as running:
        said = running.s_client("-tls1_2", send="R\n")
        assert "RENEGOTIATING" in said
        assert "no renegotiation" in said


@pytest.mark.parametrize(
    ("settings", "client", "let_in"),
    [
        (VERIFIED, "client", True),
        (VERIFIED, "nameless", True),
        (VERIFIED, "stranger", False),
        (VERIFIED, None, False),
        (VERIFIED, "server", False),  # a certificate for servers, not for clients
        (VERIFIED.replace("RequireAndVerify", "Verify").replace("ClientCert", "ClientCertIfGiven"), None, True),
        (VERIFIED.replace("RequireAndVerify", "Verify").replace("ClientCert", "ClientCertIfGiven"), "client", True),
        (VERIFIED.replace("RequireAndVerify", "Verify").replace("ClientCert", "ClientCertIfGiven"), "stranger", False),
        ("  client_auth_type: RequestClientCert\n", "stranger", True),
        ("  client_auth_type: NoClientCert\n", None, True),
        (f"{VERIFIED}  client_allowed_sans: [other.example, prometheus.example]\n", "client", True),
        (f"{VERIFIED}  client_allowed_sans: [192.0.2.7]\n", "client", True),
        (f"{VERIFIED}  client_allowed_sans: ['2001:db8::7']\n", "client", True),
        (f"{VERIFIED}  client_allowed_sans: [example, PROMETHEUS.example]\n", "client", False),
        (f"{VERIFIED}  client_allowed_sans: [prometheus.example]\n", "nameless", False),
        (f"{VERIFIED}  client_allowed_sans: [prometheus.example]\n", "stranger", False),
        (f"{VERIFIED}  client_allowed_sans: []\n", "client", False),
        (VERIFIED.replace("ca.crt", "client.crt"), "client", True),  # one certificate instead of an authority
        (VERIFIED.replace("ca.crt", "client.crt"), "nameless", False),
    ],
)
def test_clients_are_let_in_by_their_certificates(
    folder: Path, settings: str, client: str | None, let_in: bool
) -> None:
    with web(folder, TLS + settings) as running:
        for version in ("1.2", "1.3"):
            status, text = running.curl(*trusting(folder, client), "--tls-max", version)
            assert status == (200 if let_in else 0), text
            assert ("llama_slots" in text) == let_in
        assert running.ask(lambda: running.server.connections) == 0 or let_in


def test_a_certificate_does_not_replace_the_password(folder: Path) -> None:
    with web(folder, TLS + VERIFIED + ALICE) as running:
        assert running.curl(*trusting(folder, "client"))[0] == 401
        assert running.curl(*trusting(folder, "client"), "--user", "alice:fakepassword")[0] == 200


def test_broken_handshakes_leave_no_word_in_the_log(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with web(folder, TLS + VERIFIED) as running:
        running.curl(scheme="http")
        running.curl(*trusting(folder, "stranger"))
        running.s_client("-tls1_1", "-cipher", "ALL:@SECLEVEL=0")
        assert running.curl(*trusting(folder, "client"))[0] == 200
    assert not caplog.records
