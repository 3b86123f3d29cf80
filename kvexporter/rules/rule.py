"""What a rule consists of, and the pieces of PromQL that many of them share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kvexporter.rules.links import dashboard_template, runbook_url
from kvexporter.rules.words import Text, template

Severity = Literal["page", "warning", "info"]

SERVER_LABELS = ("job", "instance", "server")
HOST_LABELS = ("job", "instance")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """One recording rule, named level:metric:operation."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One alert. What it says is a summary and a description with placeholders (see words.py)."""

    name: str
    severity: Severity
    when: str
    """When it fires, in words, for the reference."""
    expr: str
    summary: str
    description: Text
    """The first sentence has no numbers, so that there always is one."""
    dashboard: str
    labels: tuple[str, ...] = SERVER_LABELS
    """Labels that its series have."""
    fixed: dict[str, str] = field(default_factory=dict)
    """Labels that it adds, besides the severity."""
    hold: int = 0
    """Seconds that the expression must hold before it fires."""
    keep: int = 0
    """Seconds that it goes on firing after the expression holds no more."""

    @property
    def rule_labels(self) -> dict[str, str]:
        """Give the labels that the rule adds to its series'."""
        return {"severity": self.severity, **self.fixed}

    @property
    def annotations(self) -> dict[str, str]:
        """Give the annotations as Prometheus' templates."""
        return {
            "summary": template((self.summary,), self.labels),
            "description": template(self.description, self.labels),
            "runbook_url": runbook_url(self.name),
            "dashboard_url": dashboard_template(self.dashboard, self.labels),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleGroup:
    """Rules on one subject: one file and one group."""

    name: str
    """Also the file's name."""
    about: str
    rules: tuple[AlertRule | RecordingRule, ...]
    interval: int = 0
    """Seconds between evaluations; 0: as Prometheus is set."""

    @property
    def alerts(self) -> tuple[AlertRule, ...]:
        """Give the group's alerts."""
        return tuple(rule for rule in self.rules if isinstance(rule, AlertRule))


def of(labels: tuple[str, ...], series: str) -> str:
    """Aggregate to `labels`, so that an alert has no others, wherever its series come from."""
    return f"max by ({', '.join(labels)}) ({series})"


def of_server(series: str) -> str:
    """Aggregate to one series per server."""
    return of(SERVER_LABELS, series)


def of_host(series: str) -> str:
    """Aggregate to one series per exporter."""
    return of(HOST_LABELS, series)
