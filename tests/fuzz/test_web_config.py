"""Damaged web configurations are read or refused with their line, and no hash of a password is repeated."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given

from kvexporter.config_reading import ConfigError
from kvexporter.web.config_file import load_web_config
from tests.fuzz.budget import fuzz_settings
from tests.fuzz.mutations import mutated_bytes
from tests.support.paths import ROOT

FILES = tuple(file.read_bytes() for file in sorted((ROOT / "tests" / "web" / "config").rglob("*.yml")))


@fuzz_settings(1)
@given(mutated_bytes(FILES))
def test_a_damaged_web_configuration_is_read_or_refused_with_its_line(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "web.yml"
        file.write_bytes(data)
        try:
            config, _ = load_web_config(file)
        except ConfigError as refused:
            for line in str(refused).split("\n"):
                assert line.startswith(f"{file}:"), line
                assert len(line) < 1000
            return
    assert "$2" not in repr(config)
