"""Every query gives data on a real Prometheus, where the exporter knows all that it can know."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from math import inf

import pytest

from dashboards.asking import ask_at
from dashboards.expand import Chosen, expand
from kvexporter.histogram import FILL, Histogram
from kvexporter.snapshot import ExporterSnapshot, HistogramSnapshot
from tests.support.backfill import backfilled
from tests.support.grafana import NAMES, load, targets
from tests.support.panel_data import empty_targets
from tests.support.prometheus import Prometheus
from tests.support.snapshots import FULL, exporter

STEP, SCRAPES = 15, 41


def at_scrape(number: int) -> ExporterSnapshot:
    """All that can be known, with counts that grow."""
    fill = Histogram(FILL)
    for _ in range(number + 1):
        fill.observe(0.75)
    sizes = HistogramSnapshot(((1024.0, number), (65536.0, 3.0 * number), (inf, 3.0 * number)), 50000.0 * number)
    server = replace(
        FULL, fill_seconds=fill.snapshot(), request_tokens=sizes, prompt_speed=sizes, generation_speed=sizes
    )
    return exporter(server)


@pytest.fixture(scope="module")
def started() -> float:
    # Within one block of two hours, for a query across two is not what is tested here.
    return time.time() // 7200 * 7200 - 3600


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, started: float) -> Iterator[Prometheus]:
    scrapes = ((started + number * STEP, at_scrape(number)) for number in range(SCRAPES))
    with backfilled(tmp_path_factory.mktemp("prometheus"), scrapes, lookback=STEP) as running:
        yield running


@pytest.mark.parametrize("name", NAMES)
def test_every_query_of_every_panel_gives_data(prometheus: Prometheus, started: float, name: str) -> None:
    chosen = Chosen(server="main", instance=r"gpu1\.example:9889", span=STEP * (SCRAPES - 1))
    assert empty_targets(prometheus, load(name), chosen, started, started + chosen.span) == []


def test_no_query_gives_data_of_another_server(prometheus: Prometheus, started: float) -> None:
    chosen = Chosen(server="other", span=STEP * (SCRAPES - 1))
    empty = empty_targets(prometheus, load("pool"), chosen, started, started + chosen.span)
    assert len(empty) == sum(len(panel["targets"]) for panel in load("pool")["panels"] if panel["type"] != "row")


def test_the_last_incident_reads_as_people_wrote_it_down(prometheus: Prometheus, started: float) -> None:
    tokens, share = (target for target in targets(load("pool")) if target.panel == "The last incident")

    def column(query: str) -> dict[str, float]:
        found = ask_at(prometheus.url, expand(query, Chosen(server="main")), started + STEP * (SCRAPES - 1))
        return {series.labels["slot"]: series.points[0][1] for series in found}

    assert column(tokens.query) == {
        "0": 159069, "1": 23428, "2": 77417, "3": 2949, "sum": 262863, "excess": 719,
    }  # fmt: skip
    shares = {slot: f"{value:.1%}" for slot, value in column(share.query).items()}
    assert shares == {"0": "60.7%", "1": "8.9%", "2": "29.5%", "3": "1.1%", "sum": "100.3%", "excess": "0.3%"}
