"""The configuration: what is taken, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kvexporter.config import Config, ConfigError, config_of_one, load_config
from kvexporter.config_journal import JournalConfig, JournalDefaults
from kvexporter.config_kinds import format_duration, parse_duration
from kvexporter.config_log import LogConfig
from kvexporter.config_server import GeometryConfig, ServerConfig
from kvexporter.config_tls import TlsConfig

FIXTURES = Path(__file__).parent / "config"
GOOD = sorted((FIXTURES / "good").glob("*.yml"))
BAD = sorted((FIXTURES / "bad").glob("*.yml"))


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "kvexporter.yml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal_lines(path: Path) -> list[str]:
    """What is wrong with a file, line by line; nothing if it is taken."""
    try:
        load_config(path)
    except ConfigError as error:
        return str(error).split("\n")
    return []


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_files_load(path: Path) -> None:
    assert isinstance(load_config(path), Config)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_files_are_refused_with_file_line_key_and_what_was_expected(path: Path) -> None:
    expected = path.with_suffix(".expected").read_text().rstrip("\n")
    with pytest.raises(ConfigError) as refusal:
        load_config(path)
    assert str(refusal.value) == "\n".join(f"{path}{line}" for line in expected.split("\n"))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_no_secret_is_repeated_in_an_error(path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(path)
    assert "hunter2" not in str(refusal.value)
    assert "20250101" not in str(refusal.value)


@pytest.mark.parametrize("name", ["empty", "only_comments"])
def test_a_file_without_keys_is_the_default_configuration(name: str) -> None:
    config = load_config(FIXTURES / "good" / f"{name}.yml")
    assert config == Config()
    assert config.discovers
    assert config.poll_intervals() == (1.0, 30.0)


def test_every_key_arrives_where_it_belongs() -> None:
    path = FIXTURES / "good" / "everything.yml"
    here = path.parent
    config = load_config(path)
    assert config.discovery is True
    assert (config.poll_interval, config.idle_poll_interval) == (2.0, 60.0)
    assert config.journal == JournalDefaults(namespace="models")
    main, by_url, by_user_unit, container = config.servers
    assert main == ServerConfig(
        name="main",
        url="https://127.0.0.1:8443/base",
        unit="llama-server.service",
        api_key_file=here / "key",
        tls=TlsConfig(ca_file=here / "ca.pem", cert_file=here / "client.pem", key_file=here / "client.key"),
        poll_interval=0.2,
        may_sleep=False,
        geometry=GeometryConfig(slots=4, slot_context=65536, capacity=262144, shared=True),
    )
    assert by_url.name == "[::1]:8080"
    assert (by_user_unit.name, by_user_unit.user_unit) == ("llama@1", "llama@1.service")
    assert container.journal == JournalConfig(
        matches=({"CONTAINER_NAME": "llama", "_UID": "1000"}, {"SYSLOG_IDENTIFIER": "llama"}),
        directory=Path("/var/log/journal/remote"),
    )
    assert config.poll_intervals(main) == (0.2, 60.0)
    assert config.poll_intervals(by_url) == (2.0, 60.0)
    assert config.journal_place(main) == JournalDefaults(namespace="models")
    assert config.journal_place(container) == JournalDefaults(directory=Path("/var/log/journal/remote"))


def test_an_idle_server_is_never_polled_more_often_than_a_busy_one(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, "poll_interval: 5m\n"))
    assert config.poll_intervals() == (300.0, 300.0)


def test_listed_servers_turn_discovery_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert not load_config(FIXTURES / "good" / "one_unit.yml").discovers
    assert load_config(written(tmp_path, "discovery: true\nservers: [{unit: a}]\n")).discovers


@pytest.mark.parametrize(
    ("url", "name"),
    [("http://gpu.example", "gpu.example:80"), ("https://gpu.example/x", "gpu.example:443"), ("http://a:81", "a:81")],
)
def test_a_server_without_name_and_unit_is_named_by_its_host_and_port(tmp_path: Path, url: str, name: str) -> None:
    assert load_config(written(tmp_path, f"servers: [{{url: '{url}'}}]\n")).servers[0].name == name


def test_a_missing_secret_file_is_a_warning_that_does_not_repeat_what_was_written(tmp_path: Path) -> None:
    path = written(tmp_path, "servers:\n  - unit: a\n    api_key_file: sk-hunter2\n")
    (warning,) = load_config(path).warnings
    assert warning.startswith(f"{path}:3: servers[0].api_key_file: there is no such file now")
    assert "hunter2" not in warning


def test_files_that_are_there_give_no_warning(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    config = load_config(written(tmp_path, "servers: [{unit: a, api_key_file: key}]\n"))
    assert config.warnings == ()
    assert config.servers[0].api_key_file == tmp_path / "key"


def test_a_missing_configuration_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yml: cannot be read: No such file or directory"):
        load_config(tmp_path / "nothing.yml")


def test_two_hundred_servers_are_taken_and_one_more_is_refused(tmp_path: Path) -> None:
    def servers(number: int) -> str:
        return "servers:\n" + "".join(f"  - unit: s{index}\n" for index in range(number))

    assert len(load_config(written(tmp_path, servers(200))).servers) == 200
    with pytest.raises(ConfigError, match="servers: expected 0 to 200 entries, found 201"):
        load_config(written(tmp_path, servers(201)))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x00", "not a text file in UTF-8|not YAML"),
        (b"a: \x80\n", "not a text file in UTF-8"),
        (b"a: \x00\n", "not a text file in UTF-8"),
        (b"[" * 5000, "nested too deeply"),
        (b"# " + b"x" * 1024 * 1024, "expected at most 1048576 bytes"),
        (b"a: &a [*a]\n", "unknown key"),
        (b"servers: &a [*a]\n", "expected a section"),
        (b"? [a]\n: b\n", "expected a key name"),
    ],
    ids=["utf16", "latin1", "nul", "deep", "huge", "recursive", "recursive-list", "list-as-key"],
)
def test_files_that_are_no_configuration_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(written(tmp_path, content))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("200ms", 0.2), ("1s", 1), ("2m", 120), ("1h30m", 5400), ("1m30s500ms", 90.5), ("1d", 86400)],
)
def test_durations_are_read_as_prometheus_writes_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "s", "-1s", "1.5s", "1 s", "1S", "1s ", "1µs", "٣s", "9" * 30 + "s"])
def test_other_texts_are_no_durations(text: str) -> None:
    assert parse_duration(text) is None


@given(st.integers(min_value=1, max_value=10**9))
def test_a_written_duration_reads_as_itself(milliseconds: int) -> None:
    written_again = parse_duration(format_duration(milliseconds / 1000))
    assert written_again == pytest.approx(milliseconds / 1000)


def test_an_address_of_one_endpoint_is_a_warning(tmp_path: Path) -> None:
    config = load_config(
        written(tmp_path, "servers: [{url: 'http://h:8080/metrics/'}, {url: 'http://h:8081/llama'}]\n")
    )
    (warning,) = config.warnings
    assert "servers[0].url: the URL ends with /metrics" in warning


def test_all_that_is_wrong_with_a_server_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(written(tmp_path, "servers: [{unit: a, user_unit: b, url: 'http://h:1', tls: {}}]\n"))
    assert str(refused.value).count("\n") == 1


KEYS = ["servers", "unit", "url", "name", "journal", "matches", "tls", "geometry", "slots", "poll_interval", "<<", "x"]
TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.sampled_from(["1s", "a"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(tree=TREES)
@settings(max_examples=150, deadline=None)
def test_whatever_yaml_holds_is_taken_or_refused_with_its_place(
    tmp_path_factory: pytest.TempPathFactory, tree: object
) -> None:
    path = written(tmp_path_factory.mktemp("tree"), yaml.safe_dump(tree, allow_unicode=True))
    assert all(line.startswith(str(path)) for line in refusal_lines(path))


@given(content=st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_taken_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = written(tmp_path_factory.mktemp("bytes"), content)
    assert all(line.startswith(str(path)) for line in refusal_lines(path))


def test_a_log_that_is_no_journals_names_its_server_and_takes_the_journals_place() -> None:
    path = FIXTURES / "good" / "logs.yml"
    servers = load_config(path).servers
    assert [(server.name, server.log) for server in servers] == [
        ("coder", LogConfig(file=Path("/var/log/llama/coder.log"))),
        ("llama-server", LogConfig(file=path.parent.absolute() / "relative.log")),
        ("stdin", LogConfig(stdin=True)),
        ("127.0.0.1:8085", LogConfig(file=Path("/var/lib/docker/containers/abc/abc-json.log"))),
    ]


@pytest.mark.parametrize(
    ("file", "name"),
    [("/var/log/llama.log", "llama"), ("/x/mein modell.log", "mein_modell"), ("/x/.log", "log"), ("/x/out", "out")],
)
def test_one_server_on_the_command_line_is_named_after_its_log(file: str, name: str) -> None:
    (server,) = config_of_one(None, "http://127.0.0.1:8080", Path(file)).servers
    assert (server.name, server.url) == (name, "http://127.0.0.1:8080")
    (server,) = config_of_one("mine", None, Path(file)).servers
    assert server.name == "mine"
