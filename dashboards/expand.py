"""What Grafana does before it asks: puts values in place of variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What somebody who looks at a dashboard has chosen. Times are seconds."""

    server: str = ""
    job: str = ".+"
    """A regular expression, as Grafana makes of what was chosen; `.+` for All."""
    instance: str = ".+"
    rate_interval: int = 60
    """Grafana's for a scrape interval of 15 s: four scrapes at least."""
    interval: int = 15
    span: int = 3600
    """Length of the time range."""


def expand(text: str, chosen: Chosen) -> str:
    """Give a query as it is sent to Prometheus."""
    values = {
        "$__rate_interval": f"{chosen.rate_interval}s",
        "$__interval": f"{chosen.interval}s",
        "$__range": f"{chosen.span}s",
        "$instance": chosen.instance.replace("\\", "\\\\"),
        "$job": chosen.job.replace("\\", "\\\\"),
        "$server": chosen.server.replace("\\", "\\\\").replace('"', '\\"'),
    }
    for name in sorted(values, key=len, reverse=True):
        text = text.replace(name, values[name])
    return text


def series_name(legend: str, labels: Mapping[str, str]) -> str:
    """Give the name that Grafana shows for a series."""
    if legend in ("", "__auto"):
        return ", ".join(f"{name}={value}" for name, value in labels.items() if name != "__name__")
    return _LEGEND.sub(lambda found: labels.get(found[1], ""), legend)
