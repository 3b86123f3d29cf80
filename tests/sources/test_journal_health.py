from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvexporter.sources.journal_folders import journal_folders, journal_namespaces
from kvexporter.sources.journal_health import journal_health
from kvexporter.sources.journal_library import JournalUnavailableError, journal_available, open_journal
from kvexporter.sources.journal_selection import JournalSelection
from tests.support.journal_entries import entry
from tests.support.journal_files import journal_from_export

MACHINE = "3" * 32


def of(directory: Path, unit: str = "llama-server") -> JournalSelection:
    return JournalSelection(unit=unit, directory=str(directory))


def test_a_journal_with_entries_of_the_unit_is_well(tmp_path: Path) -> None:
    journal_from_export(entry("hello"), tmp_path)
    health = journal_health(of(tmp_path))
    assert health.ok
    assert (health.notes, health.files, health.has_entries) == ((), 1, True)


def test_a_unit_without_entries_is_no_problem_but_is_said(tmp_path: Path) -> None:
    journal_from_export(entry("hello"), tmp_path)
    health = journal_health(of(tmp_path, "other"))
    assert health.ok
    assert health.has_entries is False
    assert "no entries of other.service" in health.notes[0]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    health = journal_health(of(tmp_path / "missing"))
    assert health.problems == (f"there is no journal folder {tmp_path / 'missing'}",)


def test_a_host_without_a_journal_is_told_what_may_be_wrong(tmp_path: Path) -> None:
    health = journal_health(JournalSelection(unit="llama-server"), roots=(str(tmp_path / "none"),))
    assert "is journald running?" in health.problems[0]
    assert "/etc/machine-id" in health.problems[0]


def test_files_that_are_all_damaged_are_a_problem(tmp_path: Path) -> None:
    (tmp_path / "system.journal").write_bytes(b"garbage" * 1000)
    health = journal_health(of(tmp_path))
    assert "none of the 1 journal files" in health.problems[0]


def test_an_empty_folder_is_no_problem_but_is_said(tmp_path: Path) -> None:
    health = journal_health(of(tmp_path))
    assert health.ok
    assert ["no journal files" in note for note in health.notes] == [True]


def test_folders_and_namespaces_are_told_apart(tmp_path: Path) -> None:
    for name in (MACHINE, f"{MACHINE}.llm", f"{MACHINE}.other", "remote"):
        (tmp_path / name).mkdir()
    roots = (str(tmp_path),)
    default = journal_folders(JournalSelection(unit="u"), roots)
    assert default == (str(tmp_path), str(tmp_path / MACHINE))
    named = journal_folders(JournalSelection(unit="u", namespace="llm"), roots)
    assert named == (str(tmp_path), str(tmp_path / f"{MACHINE}.llm"))
    assert journal_namespaces(roots) == ("llm", "other")


def test_without_systemd_python_the_reason_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "systemd._reader", None)
    reason = journal_available()
    assert reason is not None
    assert "kvexporter[journal]" in reason
    assert journal_health(of(tmp_path)).problems == (reason,)
    with pytest.raises(JournalUnavailableError, match="systemd-python is missing"):
        open_journal(of(tmp_path))


def test_with_systemd_python_the_journal_is_available() -> None:
    assert journal_available() is None
