"""How findings are printed."""

from __future__ import annotations

from kvexporter.reports.findings import Finding, exit_status, format_findings

FOUND = [
    Finding("ok", "main", "process 42"),
    Finding("warning", "other", "no /metrics", "start it with --metrics"),
    Finding("problem", "main", "no key", "give one"),
]


def test_findings_stand_below_their_subject_with_what_to_do() -> None:
    assert format_findings(FOUND) == (
        "main\n"
        "  ok       process 42\n"
        "  problem  no key\n"
        "           → give one\n"
        "\n"
        "other\n"
        "  warning  no /metrics\n"
        "           → start it with --metrics\n"
        "\n"
        "1 problem, 1 warning\n"
    )


def test_only_problems_make_the_check_fail() -> None:
    assert exit_status(FOUND) == 1
    assert exit_status(FOUND[:2]) == 0
    assert exit_status([]) == 0


def test_nothing_found_says_so() -> None:
    assert format_findings([]) == "no problems, no warnings\n"


def test_names_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in format_findings([Finding("ok", "\x1b[2J", "\x1b]0;x\x07", "\r")])
