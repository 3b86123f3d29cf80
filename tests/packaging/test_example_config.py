"""The example configuration stays true to the code."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from kvexporter.config import Config, load_config
from kvexporter.config_alerting import AlertingConfig, AlertmanagerConfig, BasicAuthConfig, WebhookConfig
from kvexporter.config_journal import JournalConfig, JournalDefaults
from kvexporter.config_log import LogConfig
from kvexporter.config_server import GeometryConfig, ServerConfig
from kvexporter.config_tls import TlsConfig
from tests.support.paths import ROOT

EXAMPLE = ROOT / "packaging" / "kvexporter.yml"
KEY = re.compile(r"^#( *(?:- )?(?:# )?)([a-z_]+):")


def uncommented() -> str:
    """The example with its keys in force; prose lines, which have a space after the `#`, stay comments."""
    lines = EXAMPLE.read_text().splitlines()
    return "\n".join(line[1:] if re.match(r"#(?! [A-Za-z(])( *)[^ ]", line) else line for line in lines)


def test_the_example_as_shipped_changes_nothing() -> None:
    assert load_config(EXAMPLE) == Config()


def test_the_example_with_its_comments_removed_is_a_valid_configuration(tmp_path: Path) -> None:
    path = tmp_path / "kvexporter.yml"
    path.write_text(uncommented())
    config = load_config(path)
    assert [server.name for server in config.servers] == ["coder", "container", "desk", "bare", "far"]
    assert config.discovery is True
    assert config.alerting is not None
    assert [manager.name for manager in config.alerting.alertmanagers] == ["main"]
    assert [webhook.name for webhook in config.alerting.webhooks] == ["pager", "127.0.0.1:8000"]
    assert config.servers[4].geometry == GeometryConfig(slots=4, slot_context=262144, capacity=262144, shared=True)


SECTIONS = (
    Config,
    JournalDefaults,
    ServerConfig,
    JournalConfig,
    LogConfig,
    TlsConfig,
    GeometryConfig,
    AlertingConfig,
    AlertmanagerConfig,
    WebhookConfig,
    BasicAuthConfig,
)


@pytest.mark.parametrize("section", SECTIONS)
def test_the_example_shows_every_key(section: type) -> None:
    shown = {match[2] for line in EXAMPLE.read_text().splitlines() if (match := KEY.match(line))}
    fields = {field.name for field in dataclasses.fields(section) if field.name != "warnings"}
    assert fields <= shown
