"""The exposition: the right numbers in both formats, and nothing that is unknown."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from math import floor
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric as ClientMetric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from kvexporter.metrics import render
from kvexporter.metrics.definition import Metric
from kvexporter.metrics.definitions import METRICS
from kvexporter.metrics.exposition import exposition, number
from kvexporter.pool_geometry import Geometry
from kvexporter.snapshot import ExporterSnapshot, ServerSnapshot
from tests.support.prometheus import promtool_check_metrics
from tests.support.snapshots import FULL, HOSTILE, UNKNOWN, exporter

GOLDEN = Path(__file__).parent / "full.prom"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def samples(text: str) -> list[str]:
    return [
        line for line in text.splitlines() if not line.startswith("#") and not line.startswith("kvexporter_build_info")
    ]


def names(text: str) -> set[str]:
    return {line.split("{")[0].split(" ")[0] for line in samples(text)}


class ByTheLibrary(Collector):
    """The same definitions through prometheus_client's own families: what the hand-written text must equal."""

    def __init__(self, snapshot: ExporterSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[ClientMetric]:
        for metric in METRICS:
            family = self._family(metric)
            if family.samples:
                yield family

    def _family(self, metric: Metric) -> ClientMetric:
        text, labels = metric.help_text, metric.labels
        if metric.histogram is not None:
            histogram = HistogramMetricFamily(metric.name, text, labels=labels)
            for server in self._snapshot.servers:
                if (read := metric.histogram(server)) is not None:
                    buckets: list[tuple[str, float]] = [
                        ("+Inf" if bound == float("inf") else str(bound), floor(count)) for bound, count in read.buckets
                    ]
                    histogram.add_metric([server.name], buckets, read.sum)
            return histogram
        family: GaugeMetricFamily | CounterMetricFamily | InfoMetricFamily
        if metric.kind == "info":
            family = InfoMetricFamily(metric.name.removesuffix("_info"), text)
            for values, _ in self._points(metric):
                family.add_metric([], dict(zip(labels, values, strict=True)))
            return family
        if metric.kind == "counter":
            family = CounterMetricFamily(metric.name, text, labels=labels)
        else:
            family = GaugeMetricFamily(metric.name, text, labels=labels)
        for values, value in self._points(metric):
            family.add_metric(values, value)
        return family

    def _points(self, metric: Metric) -> Iterator[tuple[tuple[str, ...], float]]:
        if metric.exporter is not None:
            yield from metric.exporter(self._snapshot)
        elif metric.server is not None:
            for server in self._snapshot.servers:
                for values, value in metric.server(server):
                    yield (_valid(server.name), *map(_valid, values)), value


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def parsed(families: Iterable[ClientMetric]) -> dict[str, tuple[str, str, dict[tuple[str, frozenset[object]], float]]]:
    return {
        family.name: (
            family.type,
            family.documentation,
            {
                (
                    sample.name,
                    frozenset((key, float(value) if key == "le" else value) for key, value in sample.labels.items()),
                ): sample.value
                for sample in family.samples
            },
        )
        for family in families
    }


def open_families(text: str) -> dict[str, object]:
    return dict(parsed(parse_openmetrics(text)))  # type: ignore[no-untyped-call]


SNAPSHOTS = {
    "full": exporter(FULL),
    "unknown": exporter(UNKNOWN),
    "hostile": exporter(HOSTILE),
    "several": exporter(FULL, UNKNOWN, HOSTILE),
    "nothing": ExporterSnapshot(at=0.0, servers=()),
}
by_snapshot = pytest.mark.parametrize("snapshot", SNAPSHOTS.values(), ids=SNAPSHOTS.keys())


def test_every_number_of_the_snapshot_is_shown_as_chosen_by_hand() -> None:
    assert samples(exposition(exporter(FULL))) == GOLDEN.read_text().splitlines()


@by_snapshot
def test_the_text_is_what_prometheus_client_makes_of_the_same_definitions(snapshot: ExporterSnapshot) -> None:
    registry = CollectorRegistry()
    registry.register(ByTheLibrary(snapshot))
    theirs = generate_latest(registry).decode()
    assert parsed(parse_text(exposition(snapshot))) == parsed(parse_text(theirs))


@by_snapshot
def test_openmetrics_is_what_prometheus_client_makes_of_the_same_definitions(snapshot: ExporterSnapshot) -> None:
    registry = CollectorRegistry()
    registry.register(ByTheLibrary(snapshot))
    theirs = openmetrics.generate_latest(registry).decode()  # type: ignore[no-untyped-call]
    assert open_families(exposition(snapshot, "openmetrics")) == open_families(theirs)


@by_snapshot
def test_a_whole_answer_in_openmetrics_is_valid(snapshot: ExporterSnapshot) -> None:
    _, body = render(snapshot, OPENMETRICS)
    assert "process_resident_memory_bytes" in open_families(body.decode())


@by_snapshot
def test_promtool_finds_nothing_to_complain_about(snapshot: ExporterSnapshot) -> None:
    _, body = render(snapshot)
    assert promtool_check_metrics(body.decode()) == ""


@by_snapshot
def test_each_metric_has_one_head_and_its_samples_stand_together(snapshot: ExporterSnapshot) -> None:
    heads = [line for line in exposition(snapshot).splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len({head.split()[2] for head in heads})


def test_what_is_unknown_is_absent_and_never_zero() -> None:
    assert names(exposition(ExporterSnapshot(at=0.0, servers=(UNKNOWN,)))) == {
        "kvexporter_journal_gaps_total",
        "kvexporter_store_errors_total",
    }


def test_causes_exist_at_zero_as_soon_as_the_log_is_read() -> None:
    text = exposition(ExporterSnapshot(at=0.0, servers=(ServerSnapshot("a", has_log=True),)))
    for cause in ("pool", "slot"):
        assert f'llama_context_exceeded_total{{server="a",cause="{cause}"}} 0' in text
        assert f'llama_context_exceeded_requests_total{{server="a",cause="{cause}"}} 0' in text
    assert 'llama_context_exceeded_log_lines_total{server="a"} 0' in text


def test_a_state_is_one_of_four_series() -> None:
    text = exposition(ExporterSnapshot(at=0.0, servers=(ServerSnapshot("a", state="sleeping"),)))
    states = {line.split('state="')[1] for line in samples(text) if line.startswith("llama_server_state")}
    assert states == {'ready"} 0', 'loading"} 0', 'sleeping"} 1', 'down"} 0'}


def test_a_split_pool_guarantees_the_whole_slot_context() -> None:
    geometry = Geometry(slots=4, slot_context=65536, capacity=262144, shared=False, source="cmdline")
    text = exposition(ExporterSnapshot(at=0.0, servers=(ServerSnapshot("a", geometry=geometry),)))
    assert 'llama_kv_pool_shared{server="a"} 0' in text
    assert 'llama_slot_guaranteed_tokens{server="a"} 65536' in text
    assert 'llama_kv_pool_overcommit_ratio{server="a"} 1\n' in text


def test_the_exporters_own_process_is_shown_apart_from_the_servers() -> None:
    _, body = render(exporter(FULL))
    families = {family.name: family for family in parse_text(body.decode())}
    assert families["process_resident_memory_bytes"].samples[0].labels == {}
    assert families["process_resident_memory_bytes"].samples[0].value != FULL.process.resident_bytes  # type: ignore[union-attr]
    assert 0 < families["process_start_time_seconds"].samples[0].value < time.time()
    assert families["process_cpu_seconds"].samples[0].name == "process_cpu_seconds_total"
    assert families["python_info"].samples[0].labels["implementation"] == "CPython"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, "text"),
        ("", "text"),
        ("*/*", "text"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text"),
        (OPENMETRICS, "openmetrics"),
        # Prometheus 2.42, and 3
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "openmetrics",
        ),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
            "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.2",
            "openmetrics",
        ),
        ("text/plain;q=0.9,application/openmetrics-text;version=1.0.0;q=0.1", "text"),
        ("application/openmetrics-text;version=1.0.0;q=0", "text"),
        ("application/openmetrics-text;version=2.0.0", "text"),
        ("application/openmetrics-text;q=x", "text"),
        ("," * 100_000, "text"),
    ],
)
def test_openmetrics_is_given_to_who_prefers_it(accept: str | None, expected: str) -> None:
    content_type, body = render(exporter(FULL), accept)
    assert ("openmetrics" in content_type) == (expected == "openmetrics")
    assert body.endswith(b"# EOF\n") == (expected == "openmetrics")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (True, "1"),
        (0.0, "0"),
        (-1.5, "-1.5"),
        (262144.0, "262144"),
        (1e15, "1000000000000000.0"),
        (0.1, "0.1"),
        (1790000000.125, "1790000000.125"),
        (float("inf"), "+Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_are_written_in_full(value: float, text: str) -> None:
    assert number(value) == text
