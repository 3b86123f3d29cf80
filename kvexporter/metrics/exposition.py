"""A snapshot as Prometheus text or OpenMetrics text.

Written by hand instead of through prometheus_client's families: a scrape of many servers is several times cheaper, and
tests hold the result equal to what prometheus_client makes of the same definitions.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from math import floor, isfinite

from prometheus_client import PlatformCollector, ProcessCollector
from prometheus_client.utils import floatToGoString

from kvexporter.metrics.definitions import METRICS
from kvexporter.metrics.negotiation import CONTENT_TYPES, Format, choose_format
from kvexporter.snapshot import ExporterSnapshot, HistogramSnapshot

LABEL_LIMIT = 128
"""Characters of a label's value. Prometheus keeps every value of every series for as long as its data."""

_OWN_COLLECTORS = (ProcessCollector(registry=None), PlatformCollector(registry=None))


def render(snapshot: ExporterSnapshot, accept: str | None = None) -> tuple[str, bytes]:
    """Give the content type and the body of an answer to a client with this Accept header.

    Besides the snapshot it holds the metrics of kvexporter's own process and of its Python.
    """
    chosen = choose_format(accept)
    return CONTENT_TYPES[chosen], (exposition(snapshot, chosen, own_process=True)).encode()


def exposition(snapshot: ExporterSnapshot, form: Format = "text", *, own_process: bool = False) -> str:
    """Give the exposition of a snapshot; without `own_process` it depends on the snapshot and the version only."""
    lines: list[str] = []
    names = [f'server="{escape(server.name)}"' for server in snapshot.servers]
    for metric in METRICS:
        start = len(lines)
        if metric.server is not None:
            keys = tuple(metric.labels[1:])
            for server, prefix in zip(snapshot.servers, names, strict=True):
                for values, value in metric.server(server):
                    labels = f"{prefix},{_labels(keys, values)}" if values else prefix
                    lines.append(f"{metric.name}{{{labels}}} {number(value)}")
        elif metric.histogram is not None:
            for server, prefix in zip(snapshot.servers, names, strict=True):
                histogram = metric.histogram(server)
                if histogram is not None:
                    _add_histogram(lines, metric.name, prefix, histogram)
        elif metric.exporter is not None:
            for values, value in metric.exporter(snapshot):
                labels = f"{{{_labels(metric.labels, values)}}}" if values else ""
                lines.append(f"{metric.name}{labels} {number(value)}")
        if len(lines) > start:
            lines.insert(start, _head(metric.name, metric.kind, metric.help_text, form))
    if own_process:
        _add_own_process(lines, form)
    if form == "openmetrics":
        lines.append("# EOF")
    lines.append("")
    return "\n".join(lines)


def _add_histogram(lines: list[str], name: str, prefix: str, histogram: HistogramSnapshot) -> None:
    # Counts are whole numbers in both formats; seconds spent are not, and round down so that buckets stay cumulative.
    count = 0
    for bound, cumulative in histogram.buckets:
        count = floor(cumulative)
        lines.append(f'{name}_bucket{{{prefix},le="{_go_float(bound)}"}} {count}')
    lines.append(f"{name}_sum{{{prefix}}} {number(histogram.sum)}")
    lines.append(f"{name}_count{{{prefix}}} {count}")


def _add_own_process(lines: list[str], form: Format) -> None:
    for collector in _OWN_COLLECTORS:
        for family in collector.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            lines.append(_head(name, family.type, family.documentation, form))
            for sample in family.samples:
                labels = _labels(tuple(sample.labels), tuple(sample.labels.values()))
                lines.append(f"{sample.name}{{{labels}}} {number(sample.value)}" if labels else
                             f"{sample.name} {number(sample.value)}")  # fmt: skip


@lru_cache(maxsize=1024)
def _head(name: str, kind: str, text: str, form: Format) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    if form == "openmetrics":
        # There a counter's name is that of its family, and an info's has no _info.
        family = name.removesuffix("_total") if kind == "counter" else name
        family = family.removesuffix("_info") if kind == "info" else family
        escaped = escaped.replace('"', '\\"')
        return f"# HELP {family} {escaped}\n# TYPE {family} {kind}"
    return f"# HELP {name} {escaped}\n# TYPE {name} {'gauge' if kind == 'info' else kind}"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join([f'{name}="{escape(value)}"' for name, value in zip(names, values, strict=True)])


@lru_cache(maxsize=4096)
def escape(value: str) -> str:
    """Escape a label's value, clipped."""
    return clipped(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def clipped(value: str) -> str:
    """Give a label's value as it is shown; bytes that are not UTF-8 were replaced before, lone surrogates are here.

    What is longer than 128 characters is cut, and ends in a hash of the whole: two values must not become one.
    """
    value = value.encode("utf-8", "replace").decode()
    if len(value) <= LABEL_LIMIT:
        return value
    digest = blake2b(value.encode(), digest_size=4).hexdigest()
    return f"{value[: LABEL_LIMIT - 1 - len(digest)]}~{digest}"


def number(value: float) -> str:
    """Write a number; whole ones without a decimal point."""
    if isinstance(value, int):
        return str(int(value))
    if not isfinite(value):
        return _go_float(value)
    if value == floor(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def _go_float(value: float) -> str:
    # Bounds are labels: they must read the same whichever client library wrote them.
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]
