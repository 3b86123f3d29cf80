"""`kvexporter lint` as a program: what it reads, by whose rules, what it prints, and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kvexporter.sources.unit_files as unit_files
from kvexporter.cli import run_cli
from kvexporter.lint import linter as linter_module
from kvexporter.lint_targets import judge, read_named
from kvexporter.sources.unit_files import UnreadableError, find_unit, read_file, units_that_mention

MISTAKE = "EXTRA_ARGS=--kv-unified-per-slot 262144 -ctk q8_0 -ctv q8_0\n"


def _lint(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    status = run_cli(["lint", "--format", "json", *map(str, arguments)])
    return status, json.loads(capsys.readouterr().out)


def _codes(document: Any) -> list[str]:
    return [finding["code"] for finding in document["findings"]]


def test_the_mistake_of_seven_minutes_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "llama.env"
    file.write_text(f"MODEL=/models/q.gguf\n{MISTAKE}")
    status, document = _lint(capsys, "--as", "bash", file)
    assert status == 1
    [finding] = document["findings"]
    assert finding["code"] == "unquoted-value"
    assert (finding["severity"], finding["file"], finding["line"], finding["column"]) == ("error", str(file), 2, 1)
    assert "a command called 262144" in finding["consequence"]
    assert "127" in finding["consequence"]
    assert finding["correction"] == 'EXTRA_ARGS="--kv-unified-per-slot 262144 -ctk q8_0 -ctv q8_0"'
    file.write_text(f"MODEL=/models/q.gguf\n{finding['correction']}\n")
    assert _lint(capsys, "--as", "bash", file)[0] == 0


def test_as_text_it_names_the_place_what_happens_and_the_corrected_line(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "llama.env"
    file.write_text(MISTAKE)
    assert run_cli(["lint", "--as", "bash", str(file)]) == 1
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert f"{file}:1:1: error: the value of EXTRA_ARGS has spaces and no quotes (unquoted-value)" in lines
    assert '  → EXTRA_ARGS="--kv-unified-per-slot 262144 -ctk q8_0 -ctv q8_0"' in lines
    assert lines[-1] == "1 error"


def test_nothing_found_is_status_0_and_unreadable_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.env"
    file.write_text("A=1\n")
    status, document = _lint(capsys, file)
    assert (status, document["findings"]) == (0, [])
    assert run_cli(["lint", str(tmp_path / "absent.env")]) == 2
    assert "absent.env: No such file" in capsys.readouterr().err
    assert run_cli(["lint", str(tmp_path)]) == 2
    assert run_cli(["lint", "no-such-unit-anywhere.service"]) == 2
    assert "no such unit" in capsys.readouterr().err
    file.write_text("A" * (unit_files.LARGEST + 1))
    assert run_cli(["lint", str(file)]) == 2
    os.mkfifo(tmp_path / "fifo.env")
    assert run_cli(["lint", str(tmp_path / "fifo.env")]) == 2


def test_wrong_use_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["lint"]) == 2
    assert run_cli(["lint", "--"]) == 2
    assert run_cli(["lint", "a.env", "--", "-c", "1"]) == 2
    assert run_cli(["lint", "--build", "new", "--", "-c", "1"]) == 2
    assert "expected a number as b8635" in capsys.readouterr().err


def test_severity_says_what_fails(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--", "llama-server", "-m", "x", "-np", "1"]
    assert _lint(capsys, *line)[0] == 1
    status, document = _lint(capsys, "--severity", "warning", *line)
    assert (status, _codes(document)) == (0, ["metrics-missing"])
    overcommitted = ["--", "-m", "x", "-c", "4096", "-np", "2", "-kvu", "--metrics"]
    assert _lint(capsys, "--severity", "warning", *overcommitted)[0] == 1
    assert _lint(capsys, "--severity", "error", *overcommitted)[0] == 0
    assert _lint(capsys, "--severity", "error", "--", "-m", "x", "--slots", "1")[0] == 1


def test_options_of_the_command_line_after_the_dashes_are_llama_servers(capsys: pytest.CaptureFixture[str]) -> None:
    status, document = _lint(capsys, "--", "-m", "x", "--format", "json", "--metrics", "-np", "1")
    assert (status, _codes(document)) == (1, ["unknown-option"])


def test_nothing_is_executed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    touched = tmp_path / "touched"
    for name in ("a.env", "a.sh", "a.service"):
        file = tmp_path / name
        file.write_text(
            f"A=$(touch {touched})\ntouch {touched}\n`touch {touched}`\nB=x touch {touched}\n"
            f"[Service]\nExecStart=/bin/sh -c 'touch {touched}'\n"
        )
        for rules in ("bash", "systemd", "script", "unit"):
            _lint(capsys, "--as", rules, file)
    assert not touched.exists()


def test_secrets_are_not_shown(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    secret = "s3cr3t"
    file = tmp_path / "a.env"
    file.write_text(
        f"LLAMA_API_KEY={secret} {secret}x\nMY_TOKEN='{secret}' {secret}\nexport PASSWORD={secret} {secret}\n"
        f'EXTRA_ARGS="--api-key {secret} {secret} --slots 1"\nHF_TOKEN="{secret} \n'
    )
    script = tmp_path / "a.sh"
    script.write_text(
        f"llama-server --api-key {secret} --api-key={secret} --hf-token '{secret} {secret}' {secret} --slots 1\n"
        f"llama-server -mu https://me:{secret}@host/x.gguf --api-keys {secret} --metric\n"
    )
    command = ["--", "-m", "x", "--api-key", secret, secret, "--slots", "1", f"--api-key={secret}"]
    for arguments in ([str(file)], [str(script)], command):
        for form in ("text", "json"):
            assert run_cli(["lint", "--format", form, *arguments]) == 1
            said = capsysbinary.readouterr()
            assert secret.encode() not in said.out + said.err, said.out.decode()


def test_terminal_codes_in_a_file_do_not_reach_the_terminal(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "a.env"
    file.write_bytes(b"A\x1b[31m=x y\nB=x \x1b]0;t\x07z\n--x\xff\n")
    run_cli(["lint", str(file)])
    out = capsysbinary.readouterr().out
    assert b"\x1b" not in out
    assert b"\x07" not in out


# Which rules hold.


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two folders of units in systemd's place, the first one first in weight."""
    found = tmp_path / "etc", tmp_path / "lib"
    for folder in found:
        folder.mkdir()
    monkeypatch.setattr(unit_files, "UNIT_FOLDERS", found)
    for function in (find_unit, units_that_mention):
        monkeypatch.setattr(function, "__defaults__", (found,))
    return found


def _judged(target: Path | str) -> linter_module.Linter:
    linter = linter_module.Linter(read_named)
    judge(linter, str(target), None)
    return linter


def test_systemds_rules_hold_for_a_file_that_a_unit_names(folders: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "llama.env"
    file.write_text(MISTAKE)
    (folders[1] / "llama.service").write_text(f"[Service]\nEnvironmentFile=-{file}\n")
    linter = _judged(file)
    assert [reading.rules for reading in linter.readings] == ["systemd"]
    assert "llama.service names it" in linter.readings[0].why
    assert not linter.findings()


def test_bashs_rules_hold_for_a_file_that_a_units_script_reads(folders: tuple[Path, Path], tmp_path: Path) -> None:
    file, script = tmp_path / "llama.env", tmp_path / "start.sh"
    file.write_text(MISTAKE)
    script.write_text(f'#!/bin/bash\nset -a\n. "{file}"\nexec llama-server $EXTRA_ARGS\n')
    (folders[0] / "llama.service").write_text(f"[Service]\nExecStart={script}\n")
    linter = _judged(file)
    assert [reading.rules for reading in linter.readings] == ["bash"]
    assert [finding.code for finding in linter.findings()] == ["unquoted-value"]


def test_both_rules_hold_where_nothing_says_who_reads_the_file(folders: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "llama.env"
    file.write_text("A=1\nB=C:\\models\n")
    linter = _judged(file)
    assert [reading.rules for reading in linter.readings] == ["bash and systemd"]
    assert not linter.findings(), "both drop the backslash"
    file.write_text('A="x\\y" z\n')
    assert {finding.rules for finding in _judged(file).findings()} == {"bash"}
    file.write_text("A='it'\"'\"'s'\nB=\"a\" # c\n")
    assert [finding.code for finding in _judged(file).findings()] == ["comment-in-value"]
    file.write_text("LLAMA_ARG_CTXSIZE=1\n")
    [finding] = _judged(file).findings()
    assert finding.rules == "bash, systemd"


def test_a_value_that_the_two_read_differently_is_told(folders: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "llama.env"
    file.write_text("A=b\\\nc\nB=ok\n\nC=x\\\n  y\n")
    found = _judged(file).findings()
    assert ("bash-and-systemd-differ", 5) in [(finding.code, finding.line) for finding in found] or [
        finding.code for finding in found
    ] == ["unquoted-value"]


def test_a_file_that_only_a_shell_understands_is_bashs(folders: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "llama.env"
    file.write_text("export A=1\n")
    assert [reading.rules for reading in _judged(file).readings] == ["bash"]


@pytest.mark.parametrize(
    ("name", "text", "rules"),
    [
        ("start.sh", "llama-server -m x -np 1 --metrics\n", "script"),
        ("start", "#!/usr/bin/env bash\nllama-server -m x -np 1 --metrics\n", "script"),
        ("llama.service", "[Service]\nExecStart=/usr/bin/llama-server -m x -np 1 --metrics\n", "unit"),
        ("unit.txt", "[Service]\nExecStart=/usr/bin/llama-server -m x -np 1 --metrics\n", "unit"),
    ],
)
def test_names_and_first_lines_tell_scripts_and_units(tmp_path: Path, name: str, text: str, rules: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    linter = _judged(file)
    assert [reading.rules for reading in linter.readings] == [rules]
    assert not linter.findings()


def test_a_unit_is_judged_with_its_drop_ins_in_systemds_order(folders: tuple[Path, Path]) -> None:
    etc, lib = folders
    server = "/usr/bin/llama-server -m x -np 1 --metrics"
    (lib / "llama-big@.service").write_text(f"[Service]\nExecStart={server} --slots 1\n")
    for folder, where, name, text in (
        (etc, "llama-big@a.service.d", "20.conf", f"[Service]\nExecStart={server} --no-slots\n"),
        (lib, "llama-big@.service.d", "10.conf", "[Service]\nExecStart=\n"),
        (lib, "llama-.service.d", "30.conf", "[Service]\nEnvironment=LLAMA_ARG_CTXSIZE=1\n"),
        (lib, "service.d", "20.conf", "this one is hidden by the one of the same name\n[Service]\nExecStart=x\n"),
    ):
        (folder / where).mkdir()
        (folder / where / name).write_text(text)
    linter = _judged("llama-big@a")
    assert [Path(reading.file).name for reading in linter.readings] == [
        "llama-big@.service", "10.conf", "20.conf", "30.conf",
    ]  # fmt: skip
    assert sorted(finding.code for finding in linter.findings()) == ["slots-endpoint-off", "unknown-variable"]


def test_a_unit_of_the_administrator_hides_the_packages_one(folders: tuple[Path, Path]) -> None:
    etc, lib = folders
    (lib / "llama.service").write_text("[Service]\nExecStart=/usr/bin/llama-server --slots 1\n")
    (etc / "llama.service").write_text("[Service]\nExecStart=/usr/bin/llama-server -m x -np 1 --metrics\n")
    assert not _judged("llama.service").findings()
    (etc / "llama.service").unlink()
    (etc / "llama.service").symlink_to("/dev/null")
    with pytest.raises(UnreadableError, match="masked"):
        _judged("llama.service")


def test_an_unreadable_environment_file_is_told_and_nothing_is_guessed(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    big = tmp_path / "big.env"
    big.write_text("A" * (unit_files.LARGEST + 1))
    (folders[0] / "llama.service").write_text(
        f"[Service]\nEnvironmentFile={big}\nExecStart=/usr/bin/llama-server -m x $EXTRA_ARGS\n"
    )
    linter = _judged("llama.service")
    assert not linter.findings(), "EXTRA_ARGS may hold anything"
    assert "larger than" in linter.readings[1].why


def test_a_file_is_read_whole_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"caf\xe9")
    assert read_file(file).encode("utf-8", "surrogateescape") == b"caf\xe9"
    assert read_named("a\0b").problem == "this is no path"


def test_it_stands_in_execstartpre(tmp_path: Path) -> None:
    """As a process, with the exit status that systemd looks at."""
    file = tmp_path / "llama.env"
    file.write_text(MISTAKE)
    command = [sys.executable, "-m", "kvexporter", "lint", "--severity", "error", "--as", "bash", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    file.write_text('EXTRA_ARGS="-c 4096 -np 2 -kvu"\n')
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "pool-overcommitted" in done.stdout
