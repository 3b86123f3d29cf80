"""Environment files, right and wrong: what lint reads in them is what real bash and a real systemd read in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvexporter.lint.bash_assignments import run_assignments
from kvexporter.lint.bash_commands import parse_commands
from kvexporter.lint.bash_values import Shell
from kvexporter.lint.places import Book
from kvexporter.lint.systemd_environment import read_systemd_environment
from tests.support.lint_cases import (
    Case,
    Outcome,
    as_bytes,
    bash_reads,
    environment_cases,
    new_linter,
    places,
    systemd_reads,
)

CASES = environment_cases()
# bash says nothing of these: the file does what it says, which is not what was meant.
BASH_IS_SILENT = frozenset(
    ("bad-value", "number-with-rest", "unknown-option", "slots-is-not-parallel", "v-cache-needs-flash-attention",
     "quotes-not-removed", "carriage-return", "missing-value", "stray-word", "nul-byte")
)  # fmt: skip
SYSTEMD_IS_SILENT = frozenset((*BASH_IS_SILENT, "unclosed-quote", "comment-continues", "not-an-assignment"))

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.path.stem)


@pytest.fixture(scope="module")
def systemd_outcomes() -> dict[str, Outcome]:
    return systemd_reads([case.path for case in CASES])


def test_there_are_at_least_forty_files() -> None:
    assert len(CASES) >= 40


@each_case
def test_what_is_found_by_bashs_rules_is_what_is_wrong(case: Case) -> None:
    linter = new_linter()
    linter.environment_file(str(case.path), case.text, ("bash",), "test")
    assert places(linter.findings()) == case.bash


@each_case
def test_what_is_found_by_systemds_rules_is_what_is_wrong(case: Case) -> None:
    linter = new_linter()
    linter.environment_file(str(case.path), case.text, ("systemd",), "test")
    assert places(linter.findings()) == case.systemd


@each_case
def test_variables_are_those_that_real_bash_sets(case: Case, tmp_path: Path) -> None:
    source = Book().add("case", case.text)
    shell = Shell(known=True)
    run_assignments(parse_commands(source.whole()), shell)
    unknown = {name for name, value in shell.variables.items() if value is None}
    assert unknown == case.unknown
    real = {
        name: value
        for name, value in bash_reads(case.path, tmp_path).variables.items()
        if name.decode() not in case.unknown
    }
    ours = as_bytes({name: value.text for name, value in shell.variables.items() if value is not None})
    if "\0" in case.text:  # bash drops these bytes; lint reports them
        ours = {name: value.replace(b"\0", b"") for name, value in ours.items()}
    assert ours == real


@each_case
def test_bash_complains_where_an_error_is_found_and_nowhere_else(case: Case, tmp_path: Path) -> None:
    linter = new_linter()
    linter.environment_file(str(case.path), case.text, ("bash",), "test")
    expected = [f for f in linter.findings() if f.severity == "error" and f.code not in BASH_IS_SILENT]
    outcome = bash_reads(case.path, tmp_path)
    assert bool(outcome.complaints) == bool(expected), outcome.complaints
    for found in expected:
        if found.code in ("invalid-name", "not-an-assignment", "spaces-around-equals", "unquoted-value"):
            assert f"line {found.line}:" in outcome.complaints, outcome.complaints
            said = ("command not found", "No such file or directory", "not a valid identifier")
            assert any(words in outcome.complaints for words in said)


@pytest.mark.real_systemd
@each_case
def test_variables_are_those_that_a_real_systemd_sets(case: Case, systemd_outcomes: dict[str, Outcome]) -> None:
    read = read_systemd_environment(Book().add("case", case.text).whole())
    ours = {name: value.text for name, value in read.variables().items()}
    assert as_bytes(ours) == systemd_outcomes[case.path.name].variables


@pytest.mark.real_systemd
@each_case
def test_systemd_complains_where_an_error_is_found_and_nowhere_else(
    case: Case, systemd_outcomes: dict[str, Outcome]
) -> None:
    linter = new_linter()
    linter.environment_file(str(case.path), case.text, ("systemd",), "test")
    expected = [f for f in linter.findings() if f.severity == "error" and f.code not in SYSTEMD_IS_SILENT]
    outcome = systemd_outcomes[case.path.name]
    assert (outcome.status != 0) == any(found.code == "refused" for found in expected)
    ignored = any(found.code != "refused" for found in expected)
    assert ("Ignoring invalid environment assignment" in outcome.complaints) == ignored, outcome.complaints
