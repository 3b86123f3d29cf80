"""No panel is empty on a real server: real llama-server, exporter and Prometheus, and agents that fill the pool."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from PIL import Image

from dashboards.answers import Answers
from dashboards.asking import ask_at
from dashboards.drawing import draw
from dashboards.expand import Chosen, expand
from tests.support.dashboard_scene import SERVER, SLOTS, DashboardScene
from tests.support.grafana import FOLDER, NAMES, load, targets
from tests.support.panel_data import empty_targets
from tests.support.paths import wait_for

pytestmark = pytest.mark.real_server

STEP = 2

NOT_HERE = {
    "Starts and kills B": "the server of this test is no unit of systemd",
    "Starts and kills C": "the server of this test is no unit of systemd",
    "Waiting for memory A": "pressure is told by control groups v2 only, where the kernel counts it",
    "Waiting for memory B": "hits of the limit are told by control groups v2 only",
    "Control group A": "a test that runs in the root of all control groups has none",
    "Memory D": "AMD's cards only; the GPUs of this test are NVIDIA's",
}
"""Queries that may be without data here, each with the reason. tests/dashboards/test_data.py has data for all."""


def test_no_panel_is_empty_and_the_last_incident_is_what_the_server_logged(tmp_path: Path) -> None:
    story = {"small": 4096, "large": 16384, "growth": 700, "answer": 100}
    with DashboardScene(tmp_path / "scene", **story, unlimited_from=0.75) as scene:
        scene.play()
        died = scene.exporter.wait_value(
            SLOTS, "llama_context_exceeded_requests_total", server=SERVER, cause="pool"
        ).by("slot", "llama_last_incident_slot_tokens")

        def scraped() -> bool:
            return scene.prometheus.value("sum(llama_context_exceeded_requests_total)") == SLOTS

        wait_for("Prometheus to scrape the incident", scraped)
        start = int(scene.started)
        end = start + (int(time.time()) - start) // STEP * STEP
        chosen = Chosen(server=SERVER, rate_interval=10, interval=STEP, span=end - start)
        for name in NAMES:
            empty = set(empty_targets(scene.prometheus, load(name), chosen, start, end))
            assert empty <= NOT_HERE.keys(), name

        tokens, _ = (target for target in targets(load("pool")) if target.panel == "The last incident")
        rows = ask_at(scene.prometheus.url, expand(tokens.query, chosen), time.time())
        shown = {row.labels["slot"]: row.points[0][1] for row in rows}
        assert shown.pop("sum") == sum(died.values())
        assert shown.pop("excess") == sum(died.values()) - 16384
        assert shown == died

        answers = Answers(scene.prometheus.url, chosen, start, end)
        for name in NAMES:
            picture = tmp_path / f"{name}.png"
            draw(json.loads((FOLDER / f"{name}.json").read_text()), answers, picture, name)
            with Image.open(picture) as drawn:
                assert drawn.width > 1000
