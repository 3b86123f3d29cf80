"""Grafana dashboards, built from code: `python -m dashboards` writes the JSON files beside it."""
