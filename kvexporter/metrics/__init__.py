"""The Prometheus view: a table of definitions, and the exposition of a snapshot by that table."""

from __future__ import annotations

from kvexporter.metrics.definitions import SECTIONS
from kvexporter.metrics.exposition import render

__all__ = ["SECTIONS", "render"]
