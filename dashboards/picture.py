"""Draws the dashboards into docs/images: `python -m dashboards.picture` (7 minutes; needs `./dev setup`).

Everything in the pictures is what a real Prometheus answered: it scraped the real exporter while agents filled the pool
of a real llama-server. Only the GPUs are not real: their numbers come from a driver's library of the tests.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from dashboards.answers import Answers
from dashboards.drawing import draw
from dashboards.expand import Chosen
from tests.support.dashboard_scene import SERVER, DashboardScene

HERE = Path(__file__).parent
PICTURES = HERE.parent / "docs" / "images"
STEP = 2
RATE_INTERVAL = 20


def main(arguments: list[str]) -> None:
    """Draw all dashboards into the folder given, else into docs/images."""
    folder = Path(arguments[0]) if arguments else PICTURES
    with tempfile.TemporaryDirectory(prefix="kvexporter-pictures-") as directory:
        story = {"small": 8192, "large": 32768, "growth": 400, "answer": 200}
        with DashboardScene(Path(directory) / "scene", **story, unlimited_from=0.85) as scene:
            scene.play()
            time.sleep(STEP * 5)  # so that what came last is seen
            steps = int(time.time() - scene.started) // STEP
            start = int(scene.started)
            end = start + steps * STEP
            chosen = Chosen(server=SERVER, rate_interval=RATE_INTERVAL, interval=STEP, span=end - start)
            answers = Answers(scene.prometheus.url, chosen, start, end)
            for name in ("fleet", "pool", "memory"):
                dashboard = json.loads((HERE / f"{name}.json").read_text("utf-8"))
                draw(dashboard, answers, folder / f"dashboard-{name}.png", dashboard["title"])


if __name__ == "__main__":
    main(sys.argv[1:])
