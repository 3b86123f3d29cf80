"""Where alerts link to. The one place to change when runbooks or dashboards live elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote_plus

RUNBOOKS = "https://github.com/kvexporter/kvexporter/blob/main/docs/runbooks"
GRAFANA = ""
"""Put before dashboard_url's path, e.g. `https://grafana.example`; empty: the path alone."""

FLEET_DASHBOARD = "kvexporter-fleet"
POOL_DASHBOARD = "kvexporter-pool"
MEMORY_DASHBOARD = "kvexporter-memory"

DASHBOARD_LABELS = ("job", "instance", "server")
"""Labels of an alert that choose what its dashboard shows."""


def runbook_url(alert: str) -> str:
    """Give the address of an alert's runbook."""
    return f"{RUNBOOKS}/{alert}.md"


def dashboard_url(dashboard: str, labels: Mapping[str, str]) -> str:
    """Give the address of a dashboard that shows what `labels` name, as the rules' own template gives it."""
    job, *others = DASHBOARD_LABELS
    url = f"{GRAFANA}/d/{dashboard}?var-{job}={quote_plus(labels.get(job, ''))}"
    return url + "".join(f"&var-{name}={quote_plus(labels[name])}" for name in others if labels.get(name))


def dashboard_template(dashboard: str, labels: tuple[str, ...]) -> str:
    """Give the same as a template of Prometheus, for an alert that has `labels`; empty ones choose nothing."""
    job, *others = DASHBOARD_LABELS
    url = f"{GRAFANA}/d/{dashboard}?var-{job}={{{{ $labels.{job} | urlquery }}}}"
    return url + "".join(
        f"{{{{ with $labels.{name} }}}}&var-{name}={{{{ . | urlquery }}}}{{{{ end }}}}"
        for name in others
        if name in labels
    )
