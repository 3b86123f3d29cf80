"""Every alert has a runbook with all its sections, and what runbooks name exists: pages, commands, metrics, alerts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvexporter.cli import commands
from kvexporter.metrics.definitions import METRICS
from kvexporter.rules.groups import ALERTS, GROUPS
from kvexporter.rules.rule import AlertRule, RecordingRule
from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "runbooks"
PAGES = [*sorted(FOLDER.glob("*.md")), ROOT / "alerts" / "README.md", ROOT / "docs" / "alerts.md"]
SECTIONS = ["What it means", "Impact", "Tell the cases apart", "Do now", "Change", "It worked when"]

each_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@each_alert
def test_every_alert_has_a_runbook_with_all_sections(alert: AlertRule) -> None:
    text = (FOLDER / f"{alert.name}.md").read_text()
    title, about = text.splitlines()[0], text.splitlines()[2]
    assert title == f"# {alert.name}"
    assert about.startswith(f"{alert.severity} · [")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    apart = text.partition("## Tell the cases apart\n")[2].partition("\n## ")[0]
    assert "\n```\n" in apart, "commands that tell the cases apart"
    assert re.search(r"^\|.*\|.*\|$", apart, re.MULTILINE), "a table of the cases"


def test_no_runbook_is_of_an_alert_that_is_gone() -> None:
    assert {page.stem for page in FOLDER.glob("*.md")} == {alert.name for alert in ALERTS} | {"README", "options"}


@each_alert
def test_the_index_lists_every_alert_with_its_severity(alert: AlertRule) -> None:
    index = (FOLDER / "README.md").read_text()
    assert f"| [{alert.name}]({alert.name}.md) | {alert.severity} | " in index


@pytest.mark.parametrize("name", ["LlamaContextExceeded", "LlamaPoolAlmostFull", "LlamaPoolFillingUp"])
def test_runbooks_of_a_full_pool_lead_to_the_options(name: str) -> None:
    assert "(options.md)" in (FOLDER / f"{name}.md").read_text()


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name) if name else page
        assert other.exists(), f"{page.name}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", other.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, target


@each_page
def test_every_metric_and_alert_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    known = {metric.name for metric in METRICS}
    recorded = {rule.name for group in GROUPS for rule in group.rules if isinstance(rule, RecordingRule)}
    assert set(re.findall(r"server:[a-z_]+:[a-z0-9_]+", text)) <= recorded
    plain = re.sub(r"server:[a-z_]+:[a-z0-9_]+", "", text)
    # What is followed by a bar or bracket is part of a pattern for grep, and stands for several metrics.
    for name in re.findall(r"(?<![\w/])(?:llama|kvexporter)_[a-z_]+\b(?![(|])", plain):
        series = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name in known or series in known, f"{page.name} names {name}"
    for name in re.findall(r"\b(?:Llama|Kvexporter)[A-Z]\w+", text):
        assert name in {alert.name for alert in ALERTS}, f"{page.name} names {name}"


@each_page
def test_every_pattern_for_grep_finds_a_metric_in_each_of_its_branches(page: Path) -> None:
    names = [metric.name for metric in METRICS]
    for pattern in re.findall(r"grep -E '\^((?:llama|kvexporter)_[^']*)'", page.read_text()):
        for branch in _branches(pattern):
            assert any(name.startswith(branch) for name in names), f"{page.name}: nothing begins with {branch}"


def _branches(pattern: str) -> list[str]:
    """All that a pattern of names and (a|b) groups, also nested, stands for."""
    found = re.search(r"\(([^()]*)\)", pattern)
    if found is None:
        return [pattern]
    parts = [pattern[: found.start()] + part + pattern[found.end() :] for part in found[1].split("|")]
    return [branch for part in parts for branch in _branches(part)]


@each_page
def test_every_command_that_a_page_names_exists_with_its_options(page: Path) -> None:
    for line in re.findall(r"kvexporter ((?:[a-z]+)(?: [^`\n#;]*)?)", _code(page.read_text())):
        name, *words = line.split()
        if name.startswith("-"):
            continue
        assert name in commands.commands, f"{page.name}: kvexporter {name}"
        options = {spelling for parameter in commands.commands[name].params for spelling in parameter.opts}
        for word in words:
            if word.startswith("--"):
                assert word in options, f"{page.name}: kvexporter {name} {word}"


def _code(text: str) -> str:
    blocks = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if re.match(r"(\S+/)?kvexporter ", line)]
    return "\n".join([*lines, *re.findall(r"`((?:\S+/)?kvexporter [^`]+)`", text)])
