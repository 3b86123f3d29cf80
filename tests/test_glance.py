"""A look at a file says what is there, and waits for a dead disk only for a moment."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kvexporter import glance as glance_module
from kvexporter.glance import glance


def test_it_says_what_is_there(tmp_path: Path) -> None:
    assert glance(tmp_path, tmp_path.is_dir) is True
    assert glance(tmp_path, tmp_path.is_file) is False
    nul = Path("a\0b")
    assert glance(nul, lambda: bool(nul.stat())) is False


def test_a_disk_that_does_not_answer_is_waited_for_once_for_all_files_of_a_folder_and_asked_again_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glance_module, "GLANCE_SECONDS", 0.3)
    answers = threading.Event()

    def look() -> bool:
        return answers.wait(60)

    began = time.monotonic()
    assert [glance(tmp_path / str(number), look) for number in range(100)] == [None] * 100
    assert time.monotonic() - began < 20
    assert glance(tmp_path.parent / "elsewhere", lambda: True) is True
    answers.set()
    glance_module._hanging[tmp_path].join(30)
    assert glance(tmp_path / "1", look) is True
