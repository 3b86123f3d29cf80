"""The bar of long reads."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kvexporter.reports import progress_bar
from kvexporter.reports.progress_bar import ProgressBar


def drawn(shares: list[float | None]) -> str:
    file = io.StringIO()
    with ProgressBar(Console(file=file, force_terminal=True, width=80)) as bar:
        for share in shares:
            bar.reached(share)
    return file.getvalue()


def test_a_short_read_shows_nothing() -> None:
    assert drawn([None, 0.1, 0.5, 1.0]) == ""


def test_a_long_read_shows_how_far_it_has_come_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(progress_bar, "_BETWEEN_SECONDS", 0.0)
    text = drawn([None, 0.25, 0.5])
    assert "25%" in text
    assert "50%" in text
    assert text.endswith("\x1b[2K")  # the line is erased
