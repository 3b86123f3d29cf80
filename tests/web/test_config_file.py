"""The web configuration file: what is taken, what is refused with which words, and that promtool says the same."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kvexporter.cli import run_cli
from kvexporter.config_reading import ConfigError
from kvexporter.web.config_file import TlsServerConfig, WebConfig, load_web_config
from kvexporter.web.config_values import CIPHERS, TLS13_CIPHERS, Users
from kvexporter.web.live_config import LiveWebConfig, check_web_config
from tests.support.certificates import make_server_files
from tests.support.paths import ROOT
from tests.support.prometheus import program

FIXTURES = Path(__file__).parent / "config"
HASH = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"


def cases(*kinds: str) -> list[str]:
    return sorted(f"{kind}/{path.name}" for kind in kinds for path in (FIXTURES / kind).glob("*.yml"))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All certificates, and the configuration files beside them."""
    folder = tmp_path_factory.mktemp("web")
    make_server_files(folder)
    for case in cases("good", "bad", "stricter", "newer"):
        shutil.copy(FIXTURES / case, folder / case.replace("/", "-"))
    return folder


def file_of(case: str, folder: Path) -> Path:
    return folder / case.replace("/", "-")


def promtool_takes(path: Path) -> bool:
    done = subprocess.run(
        [program("promtool"), "check", "web-config", path], capture_output=True, text=True, timeout=60, check=False
    )
    assert ("SUCCESS" in done.stdout + done.stderr) == (done.returncode == 0)
    return done.returncode == 0


@pytest.mark.parametrize("case", cases("good", "newer"))
def test_good_files_are_taken(case: str, folder: Path) -> None:
    check_web_config(file_of(case, folder))
    assert LiveWebConfig(file_of(case, folder)).config is not None


@pytest.mark.parametrize("case", cases("bad", "stricter"))
def test_bad_files_are_refused_with_file_line_key_and_what_was_expected(case: str, folder: Path) -> None:
    path = file_of(case, folder)
    with pytest.raises(ConfigError) as refusal:
        check_web_config(path)
    with pytest.raises(ConfigError) as at_start:
        LiveWebConfig(path)
    assert str(at_start.value) == str(refusal.value)
    assert "hunter2" not in str(refusal.value)
    assert str(refusal.value).startswith(f"{path}:")
    wanted = (FIXTURES / case).with_suffix(".expected")
    if wanted.exists():
        lines = wanted.read_text().rstrip("\n").replace("{folder}", str(folder)).split("\n")
        assert str(refusal.value) == "\n".join(f"{path}{line}" for line in lines)


@pytest.mark.parametrize("case", cases("good", "bad"))
def test_promtool_takes_and_refuses_the_same_files(case: str, folder: Path) -> None:
    assert promtool_takes(file_of(case, folder)) == case.startswith("good/")


@pytest.mark.parametrize("case", cases("stricter"))
def test_the_files_that_only_we_refuse_are_taken_by_promtool(case: str, folder: Path) -> None:
    assert promtool_takes(file_of(case, folder))


def test_every_key_arrives_where_it_belongs(folder: Path) -> None:
    config, warnings = load_web_config(folder / "good-everything.yml")
    tls = config.tls_server_config
    assert warnings == ()
    assert tls.cert_file is not None
    assert tls.key_file is not None
    assert tls.client_ca_file is not None
    assert (tls.cert_file.path, tls.key_file.path) == (folder / "server.crt", folder / "server.key")
    assert tls.client_ca_file.path == folder / "ca.crt"
    assert tls.client_auth_type == "RequireAndVerifyClientCert"
    assert (tls.min_version, tls.max_version) == ("TLS12", "TLS13")
    assert tls.cipher_suites == ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256")
    assert tls.curve_preferences == ("X25519",)
    assert config.http_server_config.headers == {"X-Frame-Options": "deny"}
    assert config.basic_auth_users == Users({b"alice": HASH.encode()})


def test_an_empty_file_is_plain_http_for_everybody(folder: Path) -> None:
    config, _ = load_web_config(folder / "good-empty.yml")
    assert config == WebConfig()
    assert config.tls is None
    assert not config.basic_auth_users


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("users", "basic_auth_users without tls_server_config: passwords can be read on the way"),
        ("old_min_version", "TLS12 is the lowest here"),
        ("client_certificates_requested", "the same as NoClientCert"),
        ("all_curves", "only the first one, X25519, is used"),
    ],
)
def test_what_is_taken_otherwise_than_it_may_be_meant_is_a_warning(case: str, words: str, folder: Path) -> None:
    _, warnings = load_web_config(folder / f"good-{case}.yml")
    assert len(warnings) == 1
    assert words in warnings[0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1.0), ("100ms", 0.1), ("1m30s", 90.0), ("1.5s", 1.5), (".5h", 1800.0), ("2us", 2e-6), ("0s", 0.0)],
)
def test_intervals_are_go_durations(text: str, seconds: float, tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    path.write_text(f"rate_limit: {{interval: {text}, burst: 1}}\n")
    assert load_web_config(path)[0].rate_limit.interval == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rate_limit: {interval: 5, burst: 1}", "rate_limit.interval: expected a duration such as"),
        ("rate_limit: {interval: -1s, burst: 1}", "rate_limit.interval: expected a duration such as"),
        ("rate_limit: {interval: 1d, burst: 1}", "rate_limit.interval: expected a duration such as"),
        ("rate_limit: {interval: 25h, burst: 1}", "at most 24h"),
        ("rate_limit: {interval: 1s}", "expected a burst of at least 1"),
        ("rate_limit: {interval: 1s, burst: -1}", "rate_limit.burst: expected a whole number"),
        ("tls_server_config: {cert: a, cert_file: b, key: c}", "expected cert or cert_file, found both"),
        ("tls_server_config: {cert: a, key: b, key_file: c}", "expected key or key_file, found both"),
        ("tls_server_config: {cert: [hunter2], key: b}", "tls_server_config.cert: expected text in PEM format"),
        ("tls_server_config: {cert: a, key: {hunter2: x}}", "tls_server_config.key: expected text in PEM format"),
        ("tls_server_config: {cert: a, key: 12345}", "tls_server_config.key: expected text in PEM format"),
        ("tls_server_config: {cert: hunter2, key: hunter2}", "expected a certificate in PEM format"),
        (
            "tls_server_config: {cert: a, key: b, client_ca: c, client_auth_type: VerifyClientCertIfGiven, "
            "client_allowed_sans: [a]}",
            "expected client_auth_type RequireAndVerifyClientCert with client_allowed_sans",
        ),
        ("tls_server_config: {cert: a, key: b, client_allowed_sans: [a]}", "with client_allowed_sans"),
        ("tls_server_config: {cert: a, key: b, cipher_suites: [TLS_RSA_WITH_AES_128_GCM_SHA256]}", "expected a suite"),
        ("basic_auth_users: {<<: {a: hunter2}}", "basic_auth_users.<<: expected a bcrypt hash"),
    ],
)
def test_more_files_are_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    path.write_text(text + "\n")
    with pytest.raises(ConfigError) as refusal:
        check_web_config(path)
    assert words in str(refusal.value)
    assert "hunter2" not in str(refusal.value)
    assert "12345" not in str(refusal.value)


def test_certificate_key_and_authority_may_stand_in_the_file(folder: Path, tmp_path: Path) -> None:
    texts = {key: (folder / name).read_text() for key, name in (("cert", "server.crt"), ("key", "server.key"))}
    tls = {**texts, "client_ca": (folder / "ca.crt").read_text(), "client_auth_type": "RequireAndVerifyClientCert"}
    path = tmp_path / "web.yml"
    path.write_text(yaml.safe_dump({"tls_server_config": tls}))
    assert LiveWebConfig(path).context is not None


def test_no_secret_is_in_the_repr(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    key = (folder / "server.key").read_text()
    text = {"cert": (folder / "server.crt").read_text(), "key": key}
    path.write_text(yaml.safe_dump({"tls_server_config": text, "basic_auth_users": {"alice": HASH}}))
    live = LiveWebConfig(path)
    shown = repr(live.config) + repr(live.__dict__)
    assert HASH not in shown
    assert "PRIVATE KEY" not in shown
    assert key.splitlines()[1] not in shown


def test_all_suites_are_known_to_openssl() -> None:
    for name in (*CIPHERS.values(), *TLS13_CIPHERS):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers(name if name in CIPHERS.values() else "ECDHE-RSA-AES128-SHA")
        assert name in {str(cipher["name"]) for cipher in context.get_ciphers()}


def test_config_check_says_what_a_usable_file_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "good-everything.yml"
    assert run_cli(["--config.check", "--web.config.file", str(path)]) == 0
    assert capsys.readouterr() == (f"{path}: usable, TLS, 1 users\n", "")


def test_config_check_refuses_an_unusable_file_with_status_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "bad-plain_password.yml"
    assert run_cli(["--config.check", "--web.config.file", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"kvexporter: {path}:2: basic_auth_users.alice: expected a bcrypt hash")


def test_the_daemon_does_not_start_with_an_unusable_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "bad-key_of_another.yml"
    assert run_cli(["--storage.path=", "--web.listen-address=127.0.0.1:0", "--web.config.file", str(path)]) == 2
    assert "expected the certificate of the key" in capsys.readouterr().err


def test_the_document_names_every_key() -> None:
    from kvexporter.web.config_file import TLS, WEB_CONFIG

    page = (ROOT / "docs" / "web.md").read_text()
    for key in [*WEB_CONFIG.keys(), *TLS.keys()]:
        assert f"`{key}`" in page


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_whatever_is_in_the_file_it_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any-web.yml"
    path.write_bytes(data)
    try:
        config, _ = load_web_config(path)
    except ConfigError:
        return
    assert isinstance(config, WebConfig)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.sampled_from(["TLS12", "NoClientCert", HASH]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
KEYS = st.sampled_from([*TlsServerConfig.__dataclass_fields__, "http2", "headers", "interval", "burst", "alice"])


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(list(WebConfig.__dataclass_fields__)), st.dictionaries(KEYS, VALUES)))
def test_whatever_the_keys_hold_the_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, object]
) -> None:
    path = tmp_path_factory.getbasetemp() / "keys-web.yml"
    path.write_text(yaml.safe_dump(data))
    said = ""
    try:
        said, _ = check_web_config(path)
    except ConfigError as error:
        said = str(error)
    assert said
    assert HASH not in said
