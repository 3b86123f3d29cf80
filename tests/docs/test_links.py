"""Every link leads somewhere, and every page can be reached."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support.pages import Page, anchor, page, pages
from tests.support.paths import ROOT

_PLAIN = re.compile(r"(?<![\w/])docs/[\w/-]+\.md\b")
REPOSITORY = "https://github.com/kvexporter/kvexporter/blob/main/"


def goals(of: Page) -> list[tuple[Path, str]]:
    """(file, anchor) that its links inside the project lead to."""
    found = []
    for link in of.links:
        if link.startswith(REPOSITORY):
            link = "/" + link.removeprefix(REPOSITORY)
        elif re.match(r"[a-z]+:", link):
            continue
        path, _, name = link.partition("#")
        start = ROOT if path.startswith("/") else of.path.parent
        file = (start / unquote(path).lstrip("/")).resolve() if path else of.path
        found.append((file, name))
    return found


@pytest.mark.parametrize("of", pages(), ids=str)
def test_links_to_files_and_anchors_resolve(of: Page) -> None:
    known = {each.path: each for each in pages()}
    broken = []
    for file, name in goals(of):
        if not file.exists():
            broken.append(f"{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}: there is no such file")
        elif name and (file not in known or name not in known[file].anchors):
            broken.append(f"{file.relative_to(ROOT)} has no heading for #{name}")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("of", pages(), ids=str)
def test_nothing_outside_the_repository_is_linked_as_a_file(of: Page) -> None:
    assert all(file.is_relative_to(ROOT) for file, _ in goals(of))


def test_every_page_can_be_reached_from_the_index() -> None:
    known = {each.path: each for each in pages()}
    seen: set[Path] = set()
    todo = [page("docs/README.md").path]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for file, _ in goals(known[path]):
            readme = file / "README.md" if file.is_dir() else file
            if readme in known:
                todo.append(readme)
    orphans = {str(each) for each in pages() if each.path.is_relative_to(ROOT / "docs")} - {
        str(known[path]) for path in seen
    }
    assert not orphans


def test_every_page_of_docs_is_in_the_index_itself() -> None:
    listed = {file for file, _ in goals(page("docs/README.md"))}
    assert {path for path in (ROOT / "docs").glob("*.md") if path.name != "README.md"} <= listed


@pytest.mark.parametrize("of", pages(), ids=str)
def test_pages_named_without_a_link_exist(of: Page) -> None:
    for name in _PLAIN.findall(of.text):
        assert (ROOT / name).is_file(), name


def test_pages_that_the_code_and_the_packaging_name_exist() -> None:
    files = [*(ROOT / "kvexporter").rglob("*.py"), *(p for p in (ROOT / "packaging").rglob("*") if p.is_file())]
    missing = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in files
        for name in _PLAIN.findall(file.read_text("utf-8"))
        if not (ROOT / name).is_file()
    }
    assert not missing


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("What next", "what-next"),
        ("llama-server's own `/metrics`", "llama-servers-own-metrics"),
        ("My client used 17 % of its window. Why?", "my-client-used-17--of-its-window-why"),
        ("GET /api/v1/servers/NAME", "get-apiv1serversname"),
        ("[0.1.0] - 2026", "010---2026"),
        ("`servers[].log`", "serverslog"),
    ],
)
def test_anchors_are_those_of_github(heading: str, expected: str) -> None:
    assert anchor(heading) == expected
