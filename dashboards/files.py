"""The dashboards as the JSON that is committed, imported and provisioned."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.fleet import fleet
from dashboards.memory import memory
from dashboards.pool import pool


def text(build: Callable[[], Dashboard]) -> str:
    """Give a dashboard's JSON; keys are sorted, so that a change of the library alone changes little."""
    return json.dumps(build(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


FILES: dict[str, Callable[[], str]] = {
    "fleet.json": partial(text, fleet),
    "pool.json": partial(text, pool),
    "memory.json": partial(text, memory),
}
"""File name → what is in it."""
