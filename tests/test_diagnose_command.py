"""`kvexporter diagnose` as it is typed: exit status, forms, errors, terminals."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvexporter.cli import run_cli
from tests.reports.test_verdict import FOUR_AGENTS
from tests.support.diagnosing import EXPECTED
from tests.support.journal_files import journal_from_export
from tests.support.paths import RECORDINGS, ROOT

Captured = pytest.CaptureFixture[str]


def export(name: str) -> str:
    return str(RECORDINGS / name / "journal.export")


@pytest.fixture
def pasted(tmp_path: Path) -> Path:
    path = tmp_path / "pasted.log"
    path.write_bytes(b"\n".join(FOUR_AGENTS))
    return path


# ---- what it says --------------------------------------------------------------------------------------------------


def test_the_pasted_log_of_four_agents_gives_the_operators_table(pasted: Path, capsys: Captured) -> None:
    assert run_cli(["diagnose", "--log-file", str(pasted)]) == 1
    text = capsys.readouterr().out
    assert text.splitlines()[2].startswith("A shared pool: 4 slots are promised 262,144 tokens each")
    table = re.findall(r"^ +(\d|sum) +\?? +([\d,]+) +([\d.]+)%$", text, re.MULTILINE)
    assert table == [
        ("0", "159,069", "60.7"),
        ("1", "23,428", "8.9"),
        ("2", "77,417", "29.5"),
        ("3", "2,949", "1.1"),
        ("sum", "262,863", "100.3"),
    ]
    assert "719 more than the pool's 262,144 tokens: exactly\n  the batch that found no room." in text
    assert "Slot 0 held most." in text


_QUOTES = {
    "mail": "> {}",
    "bare": ">{}",
    "nested": "> > {}",
    "nested without spaces": ">> {}",
    "a fence in a quote in a list": "   > {}",
    "no-break space": ">\xa0{}",
    "HTML": "&gt; {}",
}


@pytest.mark.parametrize("how", _QUOTES)
def test_a_quoted_paste_says_what_the_paste_says(how: str, pasted: Path, capsys: Captured) -> None:
    assert run_cli(["diagnose", "--log-file", str(pasted), "--format", "json"]) == 1
    expected = capsys.readouterr().out
    lines = ["On Monday somebody wrote:", _QUOTES[how].format("```")]
    lines += [_QUOTES[how].format(line) for line in pasted.read_text().splitlines()]
    lines += [_QUOTES[how].format("```"), "", "Does anybody know why?"]
    pasted.write_text("\r\n".join(lines))
    assert run_cli(["diagnose", "--log-file", str(pasted), "--format", "json"]) == 1
    assert capsys.readouterr().out == expected


def test_what_a_client_quotes_in_a_log_is_no_line_of_it(tmp_path: Path, capsys: Captured) -> None:
    log = (RECORDINGS / "b11434/unified_fits" / "server.log").read_bytes()
    (tmp_path / "log").write_bytes(log)
    assert run_cli(["diagnose", "--log-file", str(tmp_path / "log"), "--format", "json"]) == 0
    expected = capsys.readouterr().out
    forged = b"".join(b"> " + line + b"\n" for line in FOUR_AGENTS if b"Context size" not in line)
    (tmp_path / "log").write_bytes(log + b"prompt: why?\n" + forged)
    assert run_cli(["diagnose", "--log-file", str(tmp_path / "log"), "--format", "json"]) == 0
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("name", "status"), [("b11434/unified_fits", 0), ("b11434/prompt_too_long", 1), ("b11434/unified_overflow", 1)]
)
def test_the_exit_status_says_whether_something_was_found(name: str, status: int, capsys: Captured) -> None:
    assert run_cli(["diagnose", "--journal-export", export(name)]) == status
    assert capsys.readouterr().err == ""


def test_journal_files_are_read_too(tmp_path: Path, capsys: Captured) -> None:
    journal_from_export(Path(export("b11434/unified_overflow")).read_bytes(), tmp_path / "journal")
    assert run_cli(["diagnose", "--journal", str(tmp_path / "journal"), "-u", "llama-server", "--format", "json"]) == 1
    (server,) = json.loads(capsys.readouterr().out)
    assert server["counts"]["log_lines"] == EXPECTED["b11434/unified_overflow"]["log_lines"]


def test_a_log_can_come_from_a_pipe() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvexporter", "diagnose", "--log-file", "-", "--format", "json"],
        cwd=ROOT, input=b"\n".join(FOUR_AGENTS), capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, b"")
    assert json.loads(done.stdout)[0]["verdict"]["code"] == "shared_pool"


def test_so_many_incidents_are_shown_as_were_asked_for(capsys: Captured) -> None:
    run_cli(["diagnose", "--journal-export", export("b6666/uneven_overflow"), "--last", "1", "--format", "json"])
    (server,) = json.loads(capsys.readouterr().out)
    assert server["counts"]["incidents"] == EXPECTED["b6666/uneven_overflow"]["incidents"] == {"pool": 0, "slot": 2}
    assert len(server["incidents"]) == 1
    run_cli(["diagnose", "--journal-export", export("b6666/uneven_overflow"), "--last", "1"])
    assert "The latest 1 of 2 incidents\n" in capsys.readouterr().out


def test_only_the_asked_time_is_looked_at(capsys: Captured) -> None:
    path = export("replay-b11434-full")
    first = int(Path(path).read_text().split("\n", 1)[0].partition("=")[2]) // 1_000_000
    assert run_cli(["diagnose", "--journal-export", path, "--until", f"@{first + 600}"]) == 0
    assert "Too little to tell" in capsys.readouterr().out
    assert run_cli(["diagnose", "--journal-export", path, "--since", f"@{first + 600}"]) == 1
    assert "A shared pool: 4 slots are promised 262,144 tokens" in capsys.readouterr().out


# ---- the JSON's schema ---------------------------------------------------------------------------------------------


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """Every field must be there, and no other."""


class Verdict(Strict):
    code: str
    text: str
    found: bool


class Geometry(Strict):
    slots: int | None
    slot_context_tokens: int | None
    pool_capacity_tokens: int | None
    pool_shared: bool | None
    promised_tokens: int | None
    overcommit_ratio: float | None
    guaranteed_tokens: int | None
    source: str | None


class ByCause(Strict):
    pool: int
    slot: int


class Counts(Strict):
    log_lines: int
    incidents: ByCause
    requests_failed: ByCause
    recoveries: int
    purges: int
    context_shifts: int
    answers_truncated: int
    restarts: int | None
    exits: dict[str, int]
    oom_kills: int | None
    starts: int
    requests_cancelled: int
    suppressed_lines: int


class Slot(Strict):
    slot: int
    task: int | None
    tokens: int | None
    share: float | None


class Incident(Strict):
    cause: str
    started: str | float | None
    ended: str | float | None
    slots: list[Slot]
    sum_tokens: int | None
    capacity_tokens: int | None
    excess_tokens: int | None
    unplaced_batch_tokens: int | None
    biggest_slot: int | None
    requests_failed: int
    request_tokens: int | None
    adds_up: bool | None
    demand_above_seconds: float | None
    build: str | None


class RequestTokens(Strict):
    count: int
    p50: int | None
    p95: int | None
    max: int | None


class Client(Strict):
    address: str
    requests: int
    failed: int


class Advice(Strict):
    flags: list[str]
    guaranteed_tokens: int | None
    kv_bytes: int | None
    why: str
    flags_any_build: list[str]


class Server(Strict):
    server: str
    unit: str | None
    build: str | None
    model: str | None
    first_line: str | float | None
    last_line: str | float | None
    verdict: Verdict
    geometry: Geometry
    counts: Counts
    incidents: list[Incident]
    request_tokens: RequestTokens
    clients: list[Client]
    advice: list[Advice]
    notes: list[str]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_json_keeps_to_its_documented_form(name: str, capsys: Captured) -> None:
    for source in (["--journal-export", export(name)], ["--log-file", str(RECORDINGS / name / "server.log")]):
        run_cli(["diagnose", *source, "--format", "json"])
        (server,) = msgspec.json.decode(capsys.readouterr().out, type=list[Server])
        assert server.verdict.code in (
            "one_oversized_session", "shared_pool", "both", "not_a_context_problem", "too_little_to_tell",
        )  # fmt: skip


def fields(kind: type[Any]) -> set[str]:
    return {field.name for field in msgspec.structs.fields(kind)}


def test_every_field_of_the_json_is_documented() -> None:
    page = (ROOT / "docs" / "diagnose.md").read_text()
    kinds = (Server, Verdict, Geometry, Counts, Slot, Incident, RequestTokens, Client, Advice)
    documented = set(re.findall(r"`([a-z0-9_]+)`", page))
    assert {name for kind in kinds for name in fields(kind)} - documented == set()


# ---- what cannot be done -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--log-file", "/nowhere/x.log"], "/nowhere/x.log: No such file or directory"),
        (["--journal-export", "/nowhere/x"], "/nowhere/x: No such file or directory"),
        (["--journal", "/nowhere"], "there is no journal folder /nowhere"),
        (["--log-file", export("b11434/unified_fits")], "give it as --journal-export"),
        (["--journal-export", str(RECORDINGS / "b11434/unified_fits/server.log")], "Then give it as --log-file"),
        (["--log-file", "a", "--journal", "b"], "expected one of --journal, --journal-export and --log-file"),
        (["--log-file", "a", "--since", "today"], "--since and --until need a journal"),
        (["--journal-export", "a", "--unit", "u"], "--unit chooses in a journal"),
        (["--since", "soon"], "expected a time such as 2026-11-30"),
        (["--since", "today", "--until", "yesterday"], "expected --since to be before --until"),
        (["--unit", "a/b"], "is not a unit name"),
        (["--last", "-1"], "--last"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_line_with_status_2(arguments: list[str], says: str, capsys: Captured) -> None:
    assert run_cli(["diagnose", *arguments]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_a_binary_file_is_refused(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 100)
    assert run_cli(["diagnose", "--log-file", str(path)]) == 2
    assert "no llama-server line found" in capsys.readouterr().err


# ---- terminals -----------------------------------------------------------------------------------------------------


def on_terminal(arguments: list[str], **environment: str) -> str:
    """What the command writes to a terminal of 100 columns, its standard error included."""
    leader, follower = pty.openpty()
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "kvexporter", *arguments],
            cwd=ROOT, stdin=follower, stdout=follower, stderr=follower,
            env={**variables, "TERM": "xterm-256color", "COLUMNS": "100", **environment},
        )  # fmt: skip
        os.close(follower)
        follower = -1
        written = bytearray()
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            written += part
        process.wait(60)
    finally:
        os.close(leader)
        if follower >= 0:
            os.close(follower)
    return written.decode()


COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")


def test_a_terminal_gets_colours_and_no_color_turns_them_off(pasted: Path) -> None:
    arguments = ["diagnose", "--log-file", str(pasted)]
    assert COLOUR.search(on_terminal(arguments)) is not None
    plain = on_terminal(arguments, NO_COLOR="1")
    assert COLOUR.search(plain) is None
    assert "A shared pool" in plain


def test_a_pipe_gets_no_escape_at_all(pasted: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvexporter", "diagnose", "--log-file", str(pasted)],
        cwd=ROOT, capture_output=True, check=False, timeout=60, env={**os.environ, "FORCE_COLOR": "1"},
    )  # fmt: skip
    assert b"\x1b" not in done.stdout
    assert max(map(len, done.stdout.decode().splitlines())) <= 80


def test_names_in_the_log_cannot_steer_the_terminal(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "server.log"
    name = "\x1b[2J|`*evil"
    path.write_text(f"srv    load_model: loading model '{name}'\nsrv  update_slots: all slots are idle\n")
    for form in ("text", "markdown"):
        run_cli(["diagnose", "--log-file", str(path), "--format", form])
        assert "\x1b" not in capsys.readouterr().out
