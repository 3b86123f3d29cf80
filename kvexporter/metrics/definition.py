"""What a metric's definition consists of.

Metrics of one server read a ServerSnapshot, the exporter's own ones the whole ExporterSnapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from kvexporter.snapshot import ExporterSnapshot, HistogramSnapshot, ServerSnapshot, SlotSnapshot

MetricType = Literal["gauge", "counter", "histogram", "info"]

Point = tuple[tuple[str, ...], float]
"""The values of the labels (without `server`), and the number."""

Points = Iterable[Point]

ReadServer = Callable[[ServerSnapshot], Points]
ReadHistogram = Callable[[ServerSnapshot], HistogramSnapshot | None]
ReadExporter = Callable[[ExporterSnapshot], Points]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric: what is measured, in which unit, where it comes from and when there is no such series."""

    name: str
    kind: MetricType
    unit: str
    meaning: str
    """What is measured: whole sentences."""
    source: str
    """Where the number comes from: goes on after `Source: `."""
    absent: str
    """When there is no such series: goes on after `Absent `; empty if there always is."""
    labels: tuple[str, ...] = ()
    """Names of all labels; `server` is the first one of all that tell of a server."""
    server: ReadServer | None = None
    histogram: ReadHistogram | None = None
    exporter: ReadExporter | None = None
    """Exactly one of these three is set."""

    @property
    def help_text(self) -> str:
        """The HELP line's text."""
        absent = f" Absent {self.absent}." if self.absent else ""
        return f"{self.meaning} Source: {self.source}.{absent}"


@dataclass(frozen=True, slots=True)
class MetricSection:
    """Metrics that belong together, for the documents."""

    title: str
    text: str
    metrics: tuple[Metric, ...]


def gauge(
    name: str, read: ReadServer, meaning: str, *, unit: str, source: str, absent: str, labels: tuple[str, ...] = ()
) -> Metric:
    """Define a gauge of one server; `labels` are those besides `server`."""
    return Metric(
        name=name, kind="gauge", unit=unit, meaning=meaning, source=source, absent=absent,
        labels=("server", *labels), server=read,
    )  # fmt: skip


def counter(
    name: str, read: ReadServer, meaning: str, *, unit: str, source: str, absent: str, labels: tuple[str, ...] = ()
) -> Metric:
    """Define a counter of one server; `labels` are those besides `server`."""
    return Metric(
        name=name, kind="counter", unit=unit, meaning=meaning, source=source, absent=absent,
        labels=("server", *labels), server=read,
    )  # fmt: skip


def histogram(name: str, read: ReadHistogram, meaning: str, *, unit: str, source: str, absent: str) -> Metric:
    """Define a histogram of one server."""
    return Metric(
        name=name, kind="histogram", unit=unit, meaning=meaning, source=source, absent=absent,
        labels=("server",), histogram=read,
    )  # fmt: skip


def own(
    name: str, kind: MetricType, read: ReadExporter, meaning: str, *,
    unit: str, source: str, absent: str, labels: tuple[str, ...] = (),
) -> Metric:  # fmt: skip
    """Define a metric of the exporter itself."""
    return Metric(
        name=name, kind=kind, unit=unit, meaning=meaning, source=source, absent=absent, labels=labels, exporter=read
    )


def one(read: Callable[[ServerSnapshot], float | None]) -> ReadServer:
    """Read one number without further labels; None is absent."""

    def points(server: ServerSnapshot) -> Points:
        value = read(server)
        return () if value is None else (((), value),)

    return points


def by_slot(read: Callable[[SlotSnapshot], float | None]) -> ReadServer:
    """Read one number of each slot, labelled with the slot's number; None is absent."""

    def points(server: ServerSnapshot) -> Points:
        return [((str(slot.id),), value) for slot in server.slots if (value := read(slot)) is not None]

    return points


def logged(read: Callable[[ServerSnapshot], float]) -> ReadServer:
    """Read a number that is counted from the log: absent where no log is read, as 0 would be a claim."""
    return one(lambda server: read(server) if server.has_log else None)
