"""The reference documents are what the code says, and are linked rightly."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvexporter.config import load_config
from kvexporter.docs.__main__ import main
from kvexporter.docs.pages import EXAMPLE, PAGES
from kvexporter.metrics.definitions import METRICS
from tests.support.paths import ROOT


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), "run: python -m kvexporter.docs"


def test_the_pages_are_written_where_asked(tmp_path: Path) -> None:
    main([str(tmp_path / "docs")])
    assert {path.name for path in (tmp_path / "docs").iterdir()} == set(PAGES)


def test_every_metric_has_a_row() -> None:
    page = PAGES["metrics.md"]()
    assert all(f"\n| `{metric.name}` |" in page for metric in METRICS)


def test_every_table_row_has_as_many_cells_as_its_head() -> None:
    for page in PAGES.values():
        table: list[str] = []
        for line in [*page().splitlines(), ""]:
            if line.startswith("|"):
                table.append(line)
                continue
            cells = {row.replace("\\|", "").count("|") for row in table}
            assert len(cells) <= 1
            table = []


def test_the_example_is_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "kvexporter.yml"
    path.write_text(EXAMPLE)
    assert [server.name for server in load_config(path).servers] == ["main", "container", "far"]
    assert EXAMPLE in PAGES["configuration.md"]()


def test_every_dependency_has_its_reason() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    reasons = (ROOT / "docs" / "dependencies.md").read_text()
    for requirement in wanted:
        name = requirement.partition(">")[0].partition("=")[0].strip()
        assert f"| {name} |" in reasons, f"docs/dependencies.md does not say why {name} is there"
