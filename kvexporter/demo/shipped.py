"""The rules and dashboards that are shipped with kvexporter: in a checkout, or in an installed package."""

from __future__ import annotations

from pathlib import Path

import kvexporter

RULES = ("recording", "pool", "server", "speed", "memory", "exporter")
DASHBOARDS = ("fleet", "pool", "memory")


class NotShippedError(Exception):
    """The files are not there; the text says where they were looked for."""


def shipped_folder() -> Path:
    """The folder with `alerts` and `dashboards`."""
    package = Path(kvexporter.__file__).resolve().parent
    places = (package.parent, package / "shipped")
    for place in places:
        if all(path.is_file() for path in _files(place)):
            return place
    raise NotShippedError(
        f"the shipped rules and dashboards are in none of {', '.join(map(str, places))}: install kvexporter anew"
    )


def rule_files(folder: Path) -> list[Path]:
    """Prometheus' rules."""
    return [folder / "alerts" / f"{name}.yaml" for name in RULES]


def alertmanager_file(folder: Path) -> Path:
    """The example for Alertmanager."""
    return folder / "alerts" / "alertmanager.yaml"


def dashboard_files(folder: Path) -> list[Path]:
    """Grafana's dashboards."""
    return [folder / "dashboards" / f"{name}.json" for name in DASHBOARDS]


def provisioning_file(folder: Path) -> Path:
    """What tells Grafana where they are."""
    return folder / "dashboards" / "provisioning.yaml"


def _files(folder: Path) -> list[Path]:
    return [*rule_files(folder), alertmanager_file(folder), *dashboard_files(folder), provisioning_file(folder)]
