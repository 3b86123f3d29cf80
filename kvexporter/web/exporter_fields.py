"""The exporter's own state and its host as JSON fields. Pure."""

from __future__ import annotations

import kvexporter
from kvexporter.facts import GpuSample
from kvexporter.snapshot import ExporterSnapshot
from kvexporter.web.amounts import clean, time_text
from kvexporter.web.problems import exporter_problems
from kvexporter.web.server_fields import Fields, problem_fields


def exporter_fields(snapshot: ExporterSnapshot, *, ready: bool) -> Fields:
    """Give what concerns all servers: version, whether each was looked at once, collectors, problems, GPUs."""
    return {
        "version": kvexporter.__version__,
        "ready": ready,
        "collectors": {
            name: {"success": status.success, "reason": clean(status.reason)}
            for name, status in snapshot.collectors.items()
        },
        "problems": problem_fields(exporter_problems(snapshot)),
        "gpus": [_gpu(gpu) for gpu in snapshot.gpus],
        "unified_memory_total_bytes": snapshot.unified_memory_total,
        "unified_memory_available_bytes": snapshot.unified_memory_available,
    }


def head_fields(snapshot: ExporterSnapshot, *, ready: bool) -> Fields:
    """Give what every answer begins with: its time, and the exporter."""
    return {"at": time_text(snapshot.at), "exporter": exporter_fields(snapshot, ready=ready)}


def _gpu(gpu: GpuSample) -> Fields:
    return {
        "gpu": gpu.index,
        "uuid": clean(gpu.uuid) or None,
        "name": clean(gpu.name) or None,
        "unified": gpu.unified,
        "memory_total_bytes": gpu.memory_total,
        "memory_used_bytes": gpu.memory_used,
        "utilization_ratio": gpu.utilization_ratio,
        "temperature_celsius": gpu.temperature_celsius,
        "power_watts": gpu.power_watts,
    }
