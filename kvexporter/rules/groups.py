"""All rules, in the order in which they are shown."""

from __future__ import annotations

from kvexporter.rules.exporter import EXPORTER
from kvexporter.rules.memory import MEMORY
from kvexporter.rules.pool import POOL
from kvexporter.rules.recording import RECORDING
from kvexporter.rules.rule import AlertRule, RuleGroup
from kvexporter.rules.server import SERVER
from kvexporter.rules.speed import SPEED

GROUPS: tuple[RuleGroup, ...] = (RECORDING, POOL, SERVER, SPEED, MEMORY, EXPORTER)

ALERTS: tuple[AlertRule, ...] = tuple(alert for group in GROUPS for alert in group.alerts)
