"""How the exporter starts: what it needs first, and what it says."""

from __future__ import annotations

import socket

from tests.support.exporter import Exporter


def test_with_its_port_taken_it_ends_before_it_begins_anything() -> None:
    exporter = Exporter({"servers": [{"name": "s", "url": "http://127.0.0.1:9"}]})
    try:
        with socket.create_server(("127.0.0.1", exporter.port)):
            exporter.launch()
            assert exporter.wait_end() == 1
        said = exporter.log()
        assert "the port is taken" in said
        assert "watching" not in said
        assert not exporter.store_file.exists()
    finally:
        exporter.__exit__(None, None, None)


def test_its_log_names_the_configuration_and_says_that_a_server_is_down() -> None:
    with Exporter({"servers": [{"name": "s", "url": "http://127.0.0.1:9"}]}) as exporter:
        exporter.wait_value(0, "llama_up", server="s")
        said = exporter.log()
        assert f"configuration: {exporter.config_file}" in said
        assert said.count("(refused)") == 1, said


def test_a_configured_unit_that_does_not_exist_is_down() -> None:
    with Exporter({"servers": [{"name": "s", "unit": "no-such-unit.service"}]}) as exporter:
        exporter.wait_value(0, "llama_up", server="s")
