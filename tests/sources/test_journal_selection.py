from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kvexporter.sources.journal_selection import MESSAGE_ID_COREDUMP, JournalSelection, narrowed
from tests.support.collected_journal import CollectedJournal
from tests.support.journal_entries import entry, from_systemd
from tests.support.journal_files import journal_from_export

STARTED = b"39f53479d3a045ac8e11786248231fbf"
OTHER = "other.service"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Entries about two units in every way that journalctl -u knows, and some that it must leave out."""
    by_root = {"_SYSTEMD_UNIT": "systemd-journald.service", "_TRANSPORT": "driver"}
    core = {"MESSAGE_ID": MESSAGE_ID_COREDUMP, "_SYSTEMD_UNIT": "systemd-coredump@1.service"}
    entries = [
        entry("own line", 0),
        entry("other's line", 1, _SYSTEMD_UNIT=OTHER),
        from_systemd("Started llama-server.service.", STARTED, 2),
        from_systemd("Started other.service.", STARTED, 3, unit=OTHER),
        entry(
            "Suppressed 9 messages from llama-server.service", 4, OBJECT_SYSTEMD_UNIT="llama-server.service", **by_root
        ),
        entry("not root's", 5, OBJECT_SYSTEMD_UNIT="llama-server.service", _UID="1000", _SYSTEMD_UNIT=OTHER),
        entry("dumped core", 6, COREDUMP_UNIT="llama-server.service", **core),
        entry("dumped core", 7, COREDUMP_UNIT=OTHER, **core),
        entry("forged", 8, UNIT="llama-server.service", _SYSTEMD_UNIT=OTHER),
        entry("no unit at all", 9, _SYSTEMD_UNIT=""),
        entry("instance's line", 10, _SYSTEMD_UNIT="llama-server@a.service"),
        entry("user's line", 11, _SYSTEMD_UNIT="user@1000.service", _SYSTEMD_USER_UNIT="llama.service", _UID="1000"),
        entry("another user's", 12, _SYSTEMD_UNIT="user@7.service", _SYSTEMD_USER_UNIT="llama.service", _UID="7"),
        entry("about the user's", 13, USER_UNIT="llama.service", _UID="1000", _SYSTEMD_UNIT="user@1000.service"),
        entry("in a container", 14, _SYSTEMD_UNIT="docker.service", CONTAINER_NAME="llama"),
        entry("in another", 15, _SYSTEMD_UNIT="docker.service", CONTAINER_NAME="db", SYSLOG_IDENTIFIER="x"),
    ]
    journal_from_export(b"".join(entries), tmp_path / "journal")
    return tmp_path / "journal"


def read(selection: JournalSelection) -> list[str]:
    journal = CollectedJournal(selection=selection)
    journal.open(head=True)
    journal.drain()
    journal.close()
    return [entry.message.decode() for entry in journal.entries]


def journalctl(directory: Path, *arguments: str) -> list[str]:
    command = ["journalctl", "-D", str(directory), "-o", "cat", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


@pytest.mark.parametrize("unit", ["llama-server.service", "llama-server", "llama-server@a.service", "other.service"])
def test_a_unit_selects_what_journalctl_selects(mixed: Path, unit: str) -> None:
    expected = journalctl(mixed, "-u", unit)
    assert read(JournalSelection(unit=unit, directory=str(mixed))) == expected
    assert expected


def test_a_unit_selects_its_lines_and_what_is_said_about_it_by_who_may(mixed: Path) -> None:
    assert read(JournalSelection(unit="llama-server", directory=str(mixed))) == [
        "own line",
        "Started llama-server.service.",
        "Suppressed 9 messages from llama-server.service",
        "dumped core",
    ]


def test_a_user_unit_can_be_one_users_or_anybodys(mixed: Path) -> None:
    ones = JournalSelection(user_unit="llama", uid=1000, directory=str(mixed))
    assert read(ones) == ["user's line", "about the user's"]
    anybodys = JournalSelection(user_unit="llama", directory=str(mixed))
    assert read(anybodys) == ["user's line", "another user's", "about the user's"]


def test_groups_are_alternatives_and_their_fields_are_demanded_together(mixed: Path) -> None:
    groups = ({"CONTAINER_NAME": "llama"}, {"_SYSTEMD_UNIT": "docker.service", "SYSLOG_IDENTIFIER": "x"})
    assert read(JournalSelection(matches=groups, directory=str(mixed))) == ["in a container", "in another"]


def test_a_folder_alone_selects_everything(mixed: Path) -> None:
    assert read(JournalSelection(directory=str(mixed))) == journalctl(mixed)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "needs a unit"),
        ({"unit": "a", "user_unit": "b"}, "not several"),
        ({"unit": "a", "directory": "/x", "namespace": "y"}, "not both"),
        ({"unit": "a", "uid": 3}, "uid belongs"),
        ({"unit": ""}, "not a unit name"),
        ({"matches": ({"lower": "x"},)}, "not a journal field"),
        ({"matches": ({"FIELD": ""},)}, "has no value"),
        ({"matches": ({},)}, "empty"),
    ],
)
def test_an_impossible_selection_is_refused_with_the_reason(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        JournalSelection(**arguments)  # type: ignore[arg-type]


def test_narrowing_drops_groups_that_demand_another_value() -> None:
    groups = ((("_SYSTEMD_UNIT", "u"),), (("_PID", "1"), ("UNIT", "u")))
    assert narrowed(groups, ("_PID", "7")) == ((("_SYSTEMD_UNIT", "u"), ("_PID", "7")),)
