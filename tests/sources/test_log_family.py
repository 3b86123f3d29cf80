"""Which files rotation has made of a log, told by their names, and in which order they were written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvexporter.sources import log_family
from kvexporter.sources.log_family import family, rotated


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("a.log.1", "number"),
        ("a.log.12.gz", "number"),
        ("a.1.log", "number"),
        ("a.log-20261130", "date"),
        ("a.log-20261130.gz", "date"),
        ("a.log-2026113014", "date"),
        ("a.log-1796032800", "date"),
        ("a.log.2026-11-30", "date"),
        ("a-20261130.log.gz", "date"),
        ("a-2026-11-30T10-00-00.log", "date"),
        ("a.log.old", "other"),
        ("a.log.before-the-upgrade", "other"),
        ("a.log", None),
        ("a.log.1.tmp", None),
        ("a.log~", None),
        ("a-2.log", None),
        ("a-b.log", None),
        ("a2.log", None),
        ("b.log.1", None),
        ("a.txt", None),
    ],
)
def test_a_name_tells_whether_it_is_the_logs_and_how_old(name: str, scheme: str | None) -> None:
    found = rotated("a.log", name)
    assert (found[0] if found else None) == scheme


def test_docker_and_names_without_an_ending_are_known_too() -> None:
    assert rotated("f00-json.log", "f00-json.log.2.gz") == ("number", (-2, ""))
    assert rotated("llama", "llama.3") == ("number", (-3, ""))
    assert rotated("llama", "llama2") is None


def names(path: Path) -> list[str]:
    return [Path(member.path).name for member in family(str(path))]


@pytest.mark.parametrize(
    "expected",
    [
        ["a.log.11.gz", "a.log.10.gz", "a.log.2.gz", "a.log.1", "a.log"],
        ["a.log-20260102.gz", "a.log-20261101.gz", "a.log-20261130", "a.log"],
    ],
)
def test_names_of_one_kind_tell_the_order_whatever_their_times(tmp_path: Path, expected: list[str]) -> None:
    for number, name in enumerate(reversed(expected)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (number, number))
    assert names(tmp_path / "a.log") == expected


def test_names_of_several_kinds_are_ordered_by_their_times(tmp_path: Path) -> None:
    expected = ["a.log.2", "a.log-20261129", "a.log.1", "a.log"]
    for number, name in enumerate(expected):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (number, number))
    assert names(tmp_path / "a.log") == expected


def test_a_packed_file_beside_its_plain_one_and_what_is_no_file_are_left_out(tmp_path: Path) -> None:
    for name in ("a.log", "a.log.1", "a.log.1.gz"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "a.log.2").mkdir()
    (tmp_path / "a.log.3").symlink_to("nowhere")
    assert names(tmp_path / "a.log") == ["a.log.1", "a.log"]


def test_without_a_folder_there_is_nothing(tmp_path: Path) -> None:
    assert family(str(tmp_path / "missing" / "a.log")) == []


@pytest.mark.parametrize("how", ["a.log.{}", "a.log-2026{:06d}", "a.log-2026{:06d}.gz"])
def test_of_thousands_of_rotated_files_the_newest_are_looked_at(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_family, "MOST_MEMBERS", 3)
    (tmp_path / "a.log").touch()
    for number in range(1, 21):
        (tmp_path / how.format(number)).touch()
    newest = (3, 2, 1) if how == "a.log.{}" else (18, 19, 20)
    assert names(tmp_path / "a.log") == [*(how.format(number) for number in newest), "a.log"]
