"""Whatever is in a file: no crash, no endless work, and the same variables as real bash and systemd's rules give."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvexporter.lint.bash_assignments import run_assignments
from kvexporter.lint.bash_commands import parse_commands
from kvexporter.lint.bash_values import Shell
from kvexporter.lint.context import FileText
from kvexporter.lint.exec_line import UnbalancedError, UnitEnvironment, executions
from kvexporter.lint.findings import Finding
from kvexporter.lint.linter import Linter
from kvexporter.lint.places import Book
from kvexporter.reports.lint import lint_json, print_lint
from kvexporter.reports.terminal import plain
from tests.support.lint_cases import as_bytes, bash_reads

PIECES = [
    *"A =\t\n\\\"'$)`#;&|<>({}~\0é\ufeff\udcff%",
    *(
        "\r\n",
        "\\\n",
        "$(",
        "$'",
        "[[",
        "]]",
        "$A",
        "--",
        ";;",
        "||",
        "&&",
        "B=",
        "A=(",
        "A+=",
        "${A}",
        "${A:-b}",
        "${A[@]}",
    ),
    *(
        "[1]=",
        "<<E",
        "if ",
        "then ",
        "fi\n",
        "for x in ",
        "do ",
        "done\n",
        "case x in ",
        "esac\n",
        "export ",
        "unset A\n",
    ),
    *(". /f\n", "eval ", "function f ", "f()", "sh -c '", "llama-server ", "-c ", "4096 ", "-np ", "-kvu ", "-fa "),
    *("--slots ", "--api-key ", "LLAMA_ARG_CTX_SIZE=", "[Service]\n", "ExecStart=", "Environment=", "EnvironmentFile="),
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
    st.binary(max_size=300).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)


def _judge(text: str, read: FileText) -> None:
    for how in ("bash", "systemd", "both", "script", "unit", "command"):
        linter = Linter(lambda path: read)
        if how == "bash":
            linter.environment_file("f", text, ("bash",), "")
        elif how == "systemd":
            linter.environment_file("f", text, ("systemd",), "")
        elif how == "both":
            linter.environment_file("f", text, ("bash", "systemd"), "")
        elif how == "script":
            linter.script("f", text, "")
        elif how == "unit":
            linter.unit([("f", text)], "")
        else:
            linter.command_line(text.replace("\0", "").split(" "))
        findings = linter.findings()
        lint_json(linter.readings, findings)
        shown = _shown(linter, findings)
        assert "\x1b" not in shown
        for finding in findings:
            assert finding.line >= 1
            assert finding.column >= 1


def _shown(linter: Linter, findings: list[Finding]) -> str:
    return plain(lambda console: print_lint(linter.readings, findings, console))


@given(TEXTS, TEXTS)
@settings(max_examples=300, deadline=None)
def test_no_text_is_too_much(text: str, other: str) -> None:
    _judge(text, FileText(other))


@pytest.mark.parametrize(
    "text",
    [
        "A=aaaaaaaa\n" + "A=$A$A\n" * 2000,
        "A=(" + "x " * 20000 + ")\n" + 'llama-server "${A[@]}" "${A[@]}"\n' * 200,
        "$(" * 20000,
        '"$(' * 10000,
        "(" * 20000,
        "{ " * 20000,
        "A=x\n" * 40000,
        "EXTRA_ARGS='" + "-c 1 " * 30000 + "'\n",
        "sh -c 'sh -c \"sh -c llama-server\"'\n" * 5000,
        "[Service]\n" + "Environment=A=1\n" * 10000 + "ExecStart=/llama-server $A\n" * 2000,
        "x" * 200000,
        "--kv-unifed " * 15000,
        "<<E" * 5000 + "\n" * 5000,
        "A" * 100000 + "=1\n",
        ". /f\n" * 2000,
    ],
    ids=range(15),
)
def test_work_is_bounded(text: str) -> None:
    started = time.process_time()
    _judge(text[:262_144], FileText("A=$A$A\n. /f\n"))
    # Generous: the machine is slow and shared. What is not bounded would take hours.
    assert time.process_time() - started < 60


NAMES = st.sampled_from(["A", "B", "C"])
PARTS = [
    *(
        "x",
        "y z",
        "'q r'",
        '"s t"',
        "\\ ",
        "\\\\",
        '"\\$"',
        "$A",
        "${B}",
        '"$C"',
        "$'\\n'",
        "a#b",
        "'#'",
        "\\\n",
        "=",
        "-",
    ),
    *("${A:-d}", '"a\\b"', "'\\'", '""', "1"),
]
VALUES = st.lists(st.sampled_from(PARTS), max_size=5).map("".join)
LINES = st.one_of(
    st.tuples(st.sampled_from(["", "export ", "  "]), NAMES, st.sampled_from(["=", "+="]), VALUES).map("".join),
    st.sampled_from(
        ["", "# note \\", "unset A", "true", "A=1 B=2; C=3", "A=1 && B=2", "(A=5)", "{ A=6; }", ": x=1", "export A"]
    ),
)


@given(st.lists(LINES, max_size=6))
@settings(max_examples=60, deadline=None)
def test_variables_are_those_of_real_bash(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    folder: Path = tmp_path_factory.mktemp("bash")
    file = folder / "file"
    file.write_text("\n".join([*lines, ""]))
    shell = Shell(known=True)
    run_assignments(parse_commands(Book().add("f", file.read_text()).whole()), shell)
    real = bash_reads(file, folder).variables
    unknown = {name.encode() for name, value in shell.variables.items() if value is None}
    ours = as_bytes({name: value.text for name, value in shell.variables.items() if value is not None})
    assert ours == {name: value for name, value in real.items() if name not in unknown}


@given(TEXTS)
@settings(deadline=None)
def test_an_exec_line_gives_arguments_or_says_that_a_quote_is_open(text: str) -> None:
    source = Book().add("f", text)
    try:
        found = executions(source.whole(), UnitEnvironment())
    except UnbalancedError:
        assert "'" in text or '"' in text
        return
    for execution in found:
        for argument in (execution.program, *execution.arguments):
            assert 0 <= argument.start <= argument.end <= len(text)
