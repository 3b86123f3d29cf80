"""Units and scripts: lint sees the arguments that llama-server really gets, and finds what is wrong with them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kvexporter.lint import script_checks, unit_checks
from kvexporter.lint.context import FileText
from kvexporter.lint.linter import Linter
from kvexporter.lint.server_checks import check_server
from kvexporter.lint.server_command import ServerCommand
from kvexporter.lint.words import UNKNOWN
from tests.support.lint_cases import CASES, new_linter, places, write_fake_server
from tests.support.real_systemd import RealSystemd

UNITS = sorted((CASES / "units").glob("*.service"))
SCRIPTS = sorted((CASES / "scripts").glob("*.sh"))
FILES = "/mnt/test/files/"


def _expected(path: Path) -> dict[str, str]:
    lines = path.with_suffix(".expected").read_text().splitlines()
    return {subject: words.strip() for subject, _, words in (line.partition(":") for line in lines)}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[ServerCommand]:
    """The starts of llama-server that lint judges, in their order."""
    commands: list[ServerCommand] = []

    def look(command: ServerCommand, *others: Any) -> None:
        commands.append(command)
        check_server(command, *others)

    for module in (script_checks, unit_checks):
        monkeypatch.setattr(module, "check_server", look)
    return commands


def _named_file(path: str) -> FileText:
    """A file beside the units, under the name that they have for it."""
    beside = CASES / "units" / path.removeprefix(FILES)
    if not path.startswith(FILES) or not beside.exists():
        return FileText(None, "No such file or directory", missing=True)
    return FileText(beside.read_text())


def _judge_unit(path: Path) -> Linter:
    linter = Linter(_named_file)
    linter.unit([(path.name, path.read_text())], "test")
    return linter


@pytest.fixture(scope="module")
def real_arguments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str] | None]:
    """What llama-server gets from each unit when a real systemd starts it; None where it does not start."""
    programs = tmp_path_factory.mktemp("bin")
    write_fake_server(programs)
    units = {path.name: path.read_text() for path in UNITS}
    drop_in = "[Service]\nType=oneshot\nStandardOutput=truncate:/mnt/test/out/{}\nStandardError=null\n"
    etc = {f"systemd/system/{path.name}.d/test.conf": drop_in.format(path.name) for path in UNITS}
    system = RealSystemd(units, etc, {"/opt/llama/bin": programs})
    for name in ("files", "out"):
        (system.directory / name).mkdir()
    for path in (CASES / "units").iterdir():
        copy = system.directory / "files" / path.name
        copy.write_bytes(path.read_bytes())
        copy.chmod(0o755)
    found: dict[str, list[str] | None] = {}
    with system:
        for path in UNITS:
            started = system.run("systemctl", "start", path.name, check=False)
            output = system.directory / "out" / path.name
            given = output.read_text().split("\0")[:-1] if output.exists() else []
            found[path.name] = given if started.returncode == 0 else None
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_what_is_found_in_a_unit_is_what_is_wrong(path: Path) -> None:
    found = _judge_unit(path).findings()
    shown = sorted(f"{finding.file.rpartition('/')[2]}:{finding.code}:{finding.line}" for finding in found)
    assert shown == sorted(_expected(path)["found"].split())


@pytest.mark.real_systemd
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_arguments_are_those_that_a_real_systemd_passes(
    path: Path, seen: list[ServerCommand], real_arguments: dict[str, list[str] | None]
) -> None:
    _judge_unit(path)
    real = real_arguments[path.name]
    assert (real is not None) == (_expected(path)["started"] == "yes")
    if real is not None:
        [command] = seen
        _same([(argument.text, argument.known) for argument in command.arguments], real)


def _same(ours: list[tuple[str, bool]], real: list[str]) -> None:
    """Arguments are equal where they are known; an unknown part stands for any text."""
    assert len(ours) == len(real), (ours, real)
    for (text, known), given in zip(ours, real, strict=True):
        before, _, after = text.partition(UNKNOWN)
        assert text == given if known else given.startswith(before) and given.endswith(after)


def _judge_script(path: Path) -> Linter:
    linter = new_linter()
    linter.script(path.name, path.read_text(), "test")
    return linter


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_what_is_found_in_a_script_is_what_is_wrong(path: Path) -> None:
    assert places(_judge_script(path).findings()) == tuple(sorted(_expected(path)["found"].split()))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_arguments_are_those_that_real_bash_passes(path: Path, seen: list[ServerCommand], tmp_path: Path) -> None:
    log = tmp_path / "arguments"
    write_fake_server(tmp_path, log)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["/bin/bash", path], env=environment, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    _judge_script(path)
    argv = _expected(path)["argv"]
    if argv == "none":
        assert not seen
        assert not log.exists()
        return
    [command] = seen
    if argv == "known":
        ours = [(argument.text, argument.known) for argument in command.arguments]
        _same(ours, log.read_text().split("\0")[:-1])
    else:
        assert not all(argument.known for argument in command.arguments)


def test_a_drop_in_changes_the_unit() -> None:
    linter = new_linter()
    server = "/usr/bin/llama-server -m /m.gguf --metrics"
    unit = ("u.service", f"[Service]\nExecStart={server} --slots 4\n")
    drop_in = ("u.service.d/a.conf", f"[Service]\nExecStart=\nExecStart={server} -c 8192 -np 4 -kvu\n")
    linter.unit([unit, drop_in], "test")
    assert [(found.file, found.code, found.line) for found in linter.findings()] == [
        ("u.service.d/a.conf", "pool-overcommitted", 3)
    ]
