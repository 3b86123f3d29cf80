"""The command line: what it takes, what it says and its exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

import kvexporter
from kvexporter.cli import commands, run_cli
from kvexporter.options import ListenAddress, OneServer, RunOptions
from tests.support.paths import RECORDINGS

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RunOptions]:
    """The options of each daemon that would have been started."""
    import kvexporter.daemon

    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/kvexporter")
    options: list[RunOptions] = []

    def run_daemon(given: RunOptions) -> int:
        options.append(given)
        return 0

    monkeypatch.setattr(kvexporter.daemon, "run_daemon", run_daemon)
    monkeypatch.setattr("kvexporter.commands.run.set_up_logging", lambda level, form: None)
    return options


def test_without_a_command_it_runs_with_the_defaults(started: list[RunOptions]) -> None:
    assert run_cli([]) == 0
    assert started == [RunOptions(storage_path=Path("/var/lib/kvexporter/kvexporter.db"))]


@pytest.mark.parametrize("command", [[], ["run"]])
def test_run_takes_prometheus_flags_with_and_without_its_name(started: list[RunOptions], command: list[str]) -> None:
    arguments = [
        "--config.file=/etc/k.yml",
        "--web.listen-address=:9889",
        "--web.listen-address",
        "[::1]:9890",
        "--web.telemetry-path=/m",
        "--web.enable-lifecycle",
        "--storage.path=/tmp/store.db",
        "--log.level=debug",
        "--log.format=json",
    ]
    assert run_cli([*command, *arguments]) == 0
    assert started == [
        RunOptions(
            Path("/etc/k.yml"),
            (ListenAddress("", 9889), ListenAddress("::1", 9890)),
            "/m",
            True,
            storage_path=Path("/tmp/store.db"),
        )
    ]


def test_an_empty_storage_path_keeps_nothing(started: list[RunOptions]) -> None:
    assert run_cli(["--storage.path="]) == 0
    assert started[0].storage_path is None


def test_config_is_short_for_config_file(started: list[RunOptions]) -> None:
    assert run_cli(["--config", "k.yml"]) == 0
    assert started[0].config_file == Path("k.yml")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--web.listen-address=9889"],
            "expected host:port, [IPv6 address]:port or :port, found '9889' (see kvexporter run --help)",
        ),
        (["--web.telemetry-path=/-/x"], "expected a path such as /metrics"),
        (["--storage.path=/tmp"], "expected a file such as /tmp/kvexporter.db, found a folder"),
        (["--log.level=loud"], "'loud' is not one of"),
        (["--nothing"], "No such option"),
        (["nothing"], "No such command 'nothing'"),
        (["run", "extra"], "unexpected extra argument"),
        (["--config.check"], "--config.check needs --config.file"),
        (["replay"], "expected one of DIR, --journal-export and --log-file"),
        (["replay", "a", "--log-file", "b"], "expected one of DIR"),
        (["replay", "a", "--at", "-1"], "--at"),
        (["replay", "/no/such/folder"], "/no/such/folder"),
        (["replay", "--log-file", "/no/such/file"], "/no/such/file"),
    ],
)
def test_a_wrong_command_line_is_one_line_on_stderr_and_status_2(
    arguments: list[str], words: str, capsys: Captured
) -> None:
    assert run_cli(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.startswith("kvexporter: ")
    assert err.count("\n") == 1


_NUMBERS = [
    (name, option.opts[0])
    for name, command in commands.commands.items()
    for option in command.params
    if isinstance(option.type, click.FloatRange | click.types.FloatParamType)
]


@pytest.mark.parametrize(("command", "option"), _NUMBERS, ids=lambda words: str(words))
@pytest.mark.parametrize("number", ["nan", "-nan", "inf", "-inf", "1e400"])
def test_every_option_that_takes_a_number_refuses_what_is_not_finite(
    command: str, option: str, number: str, capsys: Captured
) -> None:
    assert run_cli([command, f"{option}={number}"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"kvexporter: Invalid value for '{option}': ")
    assert err.count("\n") == 1


def test_version(capsys: Captured) -> None:
    assert run_cli(["--version"]) == 0
    assert capsys.readouterr().out == f"kvexporter {kvexporter.__version__}\n"


def test_help_shows_the_commands_and_all_options_of_run(capsys: Captured) -> None:
    assert run_cli(["--help"]) == 0
    text = capsys.readouterr().out
    for word in (
        "check",
        "replay",
        "run",
        "--config.file",
        "--config.check",
        "--web.listen-address",
        "--web.telemetry-path",
    ):
        assert word in text
    for word in ("--web.enable-lifecycle", "--log.level", "--log.format", "--version", "127.0.0.1:9889", "Exit status"):
        assert word in text


@pytest.mark.parametrize("command", ["run", "check", "replay"])
def test_every_option_has_a_help_text(command: str, capsys: Captured) -> None:
    from kvexporter.cli import commands

    assert run_cli([command, "-h"]) == 0
    text = capsys.readouterr().out
    for parameter in commands.commands[command].params:
        if parameter.param_type_name == "option":
            assert parameter.opts[0] in text
            assert getattr(parameter, "help", None)


def test_config_check_says_that_a_file_is_usable(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "k.yml"
    path.write_text("servers: [{unit: a, api_key_file: missing}]\n")
    assert run_cli(["--config.check", "--config.file", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}: usable, 1 server\n"
    assert err.startswith(f"warning: {path}:1: servers[0].api_key_file: ")


def test_config_check_says_what_is_wrong_in_both_files(tmp_path: Path, capsys: Captured) -> None:
    for name in ("k.yml", "web.yml"):
        (tmp_path / name).write_text("a: 1\n")
    files = ["--config.file", str(tmp_path / "k.yml"), "--web.config.file", str(tmp_path / "web.yml")]
    assert run_cli(["--config.check", *files]) == 2
    err = capsys.readouterr().err
    assert f"{tmp_path}/k.yml:1" in err
    assert f"{tmp_path}/web.yml:1" in err


@pytest.mark.parametrize("arguments", [["--config.check"], ["check"]])
def test_a_bad_configuration_is_said_with_its_line_and_status_2(
    tmp_path: Path, capsys: Captured, arguments: list[str]
) -> None:
    path = tmp_path / "k.yml"
    path.write_text("a: 1\nb: 2\n")
    assert run_cli([*arguments, "--config.file", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" unknown key")[0] for line in lines] == [
        f"kvexporter: {path}:1: a:",
        f"kvexporter: {path}:2: b:",
    ]


def test_replay_prints_the_exposition_of_a_recording(capsys: Captured) -> None:
    assert run_cli(["replay", str(RECORDINGS / "b11434" / "unified_overflow")]) == 0
    text, summary = capsys.readouterr()
    assert "# TYPE llama_kv_pool_capacity_tokens gauge" in text
    assert "} 4096\n" in text
    assert "process_resident_memory_bytes" not in text
    assert "the pool ran out: 4 requests died" in summary


@pytest.mark.parametrize(
    ("data", "option", "words"),
    [
        (b"", "--journal-export", "no llama-server line found: it is empty"),
        (b"", "--log-file", "no llama-server line found: it is empty"),
        (b"\x00\xff\n\x1b[", "--log-file", "no llama-server line found: is it what the server printed?"),
        (
            b"srv  update_slots: all slots are idle\n",
            "--journal-export",
            "is it a plain log? Then give it as --log-file",
        ),
        (b"__CURSOR=s=1\nMESSAGE=x\n\n", "--log-file", "give it as --journal-export"),
        (b'{"__CURSOR":"s=1","MESSAGE":"x"}\n', "--journal-export", "-o export"),
        (b'{"__CURSOR":"s=1","MESSAGE":"x"}\n', "--log-file", "-o export"),
        (b"LPKSHHRH\0\0", "--log-file", "journalctl --file FILE"),
        (
            b"__REALTIME_TIMESTAMP=1\nMESSAGE=x\n_SYSTEMD_UNIT=ssh.service\n\n",
            "--journal-export",
            "no llama-server line found: 1 entry of ssh.service: is it the right unit",
        ),
    ],
)
def test_replaying_what_is_no_log_of_a_llama_server_says_what_it_looks_like(
    tmp_path: Path, capsys: Captured, data: bytes, option: str, words: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)
    assert run_cli(["replay", option, str(file)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1


def test_a_reader_that_goes_away_ends_the_output_quietly() -> None:
    recording = RECORDINGS / "b11434" / "unified_overflow"
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m kvexporter replay '{recording}' | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "Error" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.strip() in ("0", "1")


def test_the_daemon_does_not_load_what_only_reports_need(tmp_path: Path) -> None:
    (tmp_path / "bad.yml").write_text("a: 1\n")
    code = (
        "import sys\n"
        "from kvexporter.cli import run_cli\n"
        "assert run_cli(['--config.file', 'bad.yml']) == 2\n"
        "for name in ('rich', 'pygments', 'gguf', 'kvexporter.reports.check', 'kvexporter.replay'):\n"
        "    assert name not in sys.modules, name\n"
        "assert 'kvexporter.daemon' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=120, check=True)


@pytest.mark.parametrize(
    ("closed", "arguments", "status", "said"),
    [
        ("<&-", ("diagnose", "--log-file", "-"), 2, b"kvexporter: standard input: no llama-server line found"),
        ("<&-", ("plan", "--journal-export", "-"), 2, b"kvexporter: standard input: no llama-server line found"),
        (">&-", ("diagnose", "--log-file", "{log}"), 1, b""),
        (">/dev/full", ("diagnose", "--log-file", "{log}"), 2, b"kvexporter: what is printed cannot be written"),
        (">/dev/full", ("diagnose", "--log-file", "{log}", "--format", "json"), 2, b"kvexporter: what is printed"),
    ],
)  # fmt: skip
def test_closed_and_full_streams_are_no_traceback(
    closed: str, arguments: tuple[str, ...], status: int, said: bytes
) -> None:
    log = str(RECORDINGS / "b11434" / "unified_overflow" / "server.log")
    command = [sys.executable, "-m", "kvexporter", *(each.format(log=log) for each in arguments)]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command], capture_output=True, check=False, timeout=120
    )
    assert done.returncode == status
    assert done.stderr.startswith(said)
    assert done.stderr.count(b"\n") == (1 if said else 0)


def test_one_server_with_its_log_needs_no_configuration_file(started: list[RunOptions]) -> None:
    assert run_cli(["--log.file=logs/a.log", "--name=a", "--url=http://127.0.0.1:8080/"]) == 0
    assert run_cli(["run", "--log.stdin"]) == 0
    assert [options.one_server for options in started] == [
        OneServer(Path("logs/a.log").absolute(), "a", "http://127.0.0.1:8080"),
        OneServer(),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--log.file=a", "--log.stdin"], "expected --log.file or --log.stdin, found both"),
        (["--log.file=a", "--config.file=c"], "--log.file and --log.stdin take the place of --config.file"),
        (["--name=a"], "--name and --url belong to --log.file or --log.stdin"),
        (["--log.stdin", "--name=a b"], "expected a name of 1 to 100 characters"),
        (["--log.stdin", "--url=localhost:8080"], "expected an http or https URL"),
        (["--log.stdin", "--url=http://me:hunter2@host"], "without user and password"),
    ],
)
def test_options_of_one_server_that_do_not_fit_together_are_refused(
    started: list[RunOptions], capsys: Captured, arguments: list[str], said: str
) -> None:
    assert run_cli(arguments) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "hunter2" not in told
    assert started == []


def test_the_check_speaks_of_a_log_file(capsys: Captured, tmp_path: Path) -> None:
    log = tmp_path / "llama.log"
    arguments = ["check", f"--log.file={log}", f"--storage.path={tmp_path}/none.db", "--name=it"]
    run_cli(arguments)
    assert f"there is no file {log}: it is read as soon as it is there" in capsys.readouterr().out
    log.write_bytes((RECORDINGS / "b11434" / "unified_overflow" / "server.log").read_bytes())
    run_cli(arguments)
    assert f"its log can be read (log file {log}, written to just now)" in capsys.readouterr().out
