"""Random environment files and command lines: what is read in them is what a real systemd reads in them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kvexporter.lint.exec_line import UnbalancedError, UnitEnvironment, executions, read_environment_entry
from kvexporter.lint.places import Book
from kvexporter.lint.systemd_environment import read_systemd_environment
from kvexporter.lint.unit_text import read_unit
from kvexporter.lint.words import Value
from tests.support.lint_cases import as_bytes, systemd_reads, write_fake_server
from tests.support.real_systemd import RealSystemd

FILE_PIECES = [
    *(
        "A=",
        "B=",
        "C = ",
        "x",
        "y z",
        "'q r'",
        '"s t"',
        '"',
        "'",
        "\\",
        "\\\n",
        "\n",
        "\n",
        "\n",
        " ",
        "\t",
        "#",
        " # c",
        ";",
    ),
    *("export D=", "-", "$A", '\\"', "\\\\", "\r\n", "=", "`", "é"),
]
LINE_PIECES = [
    *(
        "a",
        "b c",
        " ",
        " ",
        "'d e'",
        '"f g"',
        "$A",
        "${A}",
        "$B",
        "${B}",
        "$$",
        "%%",
        "\\t",
        "\\x41",
        "\\s",
        "\\\\",
        '"',
        "'",
    ),
    *("\\\n  ", "x$A", " $C ", " ${C} ", "=", "\\;", " \\; ", "é", "\t", "-n", " $A ", " $B ", '\\"', "\\\n# c\n"),
]
VALUES = ["one", "two words", "'quoted words' x", '"a b"c', "", "  spaces  ", "it's", "back\\slash \\\\ x", "$B", "=x"]


@pytest.mark.real_systemd
def test_random_environment_files(tmp_path: Path) -> None:
    choice = random.Random(20261130)
    paths = []
    for number in range(120):
        path = tmp_path / f"{number}.env"
        path.write_bytes("".join(choice.choices(FILE_PIECES, k=choice.randrange(1, 30))).encode())
        paths.append(path)
    outcomes = systemd_reads(paths)
    for path in paths:
        read = read_systemd_environment(Book().add("f", path.read_bytes().decode()).whole())
        ours = as_bytes({name: value.text for name, value in read.variables().items()})
        assert ours == outcomes[path.name].variables, path.read_bytes()


@pytest.mark.real_systemd
def test_random_command_lines(tmp_path: Path) -> None:
    choice = random.Random(20261130)
    write_fake_server(tmp_path)
    units = {}
    for number in range(120):
        line = "".join(choice.choices(LINE_PIECES, k=choice.randrange(1, 12))).rstrip("\\")
        first, second = (value.replace("\\", "\\\\").replace('"', '\\"') for value in choice.sample(VALUES, 2))
        units[f"line-{number}.service"] = (
            f'[Service]\nType=oneshot\nEnvironment="A={first}" "B={second}"\n'
            f"StandardOutput=truncate:/mnt/test/out/{number}\nExecStart=/opt/fake/llama-server {line}\n"
        )
    system = RealSystemd(units, binds={"/opt/fake": tmp_path})
    (system.directory / "out").mkdir()
    real = {}
    with system:
        for number, unit in enumerate(units):
            started = system.run("systemctl", "start", unit, check=False)
            output = system.directory / "out" / str(number)
            real[unit] = output.read_bytes().split(b"\0")[:-1] if started.returncode == 0 else None
    for unit, text in units.items():
        assert _arguments(text) == real[unit], text


def _arguments(text: str) -> list[bytes] | None:
    """The arguments by lint's reading; None where the unit cannot be started."""
    variables: dict[str, Value] = {}
    for entry in read_unit(Book().add("u", text)):
        try:
            if entry.key == "Environment":
                variables.update(read_environment_entry(entry.value))
            elif entry.key == "ExecStart":
                [execution] = executions(entry.value, UnitEnvironment(variables))
                return [argument.text.encode() for argument in execution.arguments]
        except UnbalancedError:
            return None
    return None
