"""The table of all metrics, in the order in which they are shown."""

from __future__ import annotations

from kvexporter.metrics.counts import CONTEXT_ERRORS, REQUESTS
from kvexporter.metrics.definition import Metric, MetricSection
from kvexporter.metrics.exporter_state import EXPORTER
from kvexporter.metrics.forecast_state import FORECAST
from kvexporter.metrics.gpu_state import GPU
from kvexporter.metrics.memory_state import MEMORY
from kvexporter.metrics.pool_state import OCCUPANCY, PROGRESS
from kvexporter.metrics.process_state import PROCESS
from kvexporter.metrics.server_state import GEOMETRY, SERVER

SECTIONS: tuple[MetricSection, ...] = (
    SERVER,
    GEOMETRY,
    OCCUPANCY,
    PROGRESS,
    FORECAST,
    CONTEXT_ERRORS,
    REQUESTS,
    PROCESS,
    MEMORY,
    GPU,
    EXPORTER,
)

METRICS: tuple[Metric, ...] = tuple(metric for section in SECTIONS for metric in section.metrics)
