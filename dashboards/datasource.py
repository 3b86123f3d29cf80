"""The Prometheus that a dashboard asks: whichever its variable names."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import DataSourceRef

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
