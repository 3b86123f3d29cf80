"""The reference of the alerts and recorded series as Markdown, made from the rules."""

from __future__ import annotations

from kvexporter.docs.tables import table
from kvexporter.rules.groups import GROUPS
from kvexporter.rules.rule import AlertRule, RecordingRule, RuleGroup
from kvexporter.rules.spans import in_words

_MADE = "<!-- Made by `python -m kvexporter.docs` from the rules in the code: change them, not this page. -->"

_TITLES = {
    "pool": "The pool",
    "server": "The server",
    "speed": "Speed",
    "memory": "Memory",
    "exporter": "The exporter",
}


def alerts_page() -> str:
    """Give docs/alerts.md."""
    parts = [
        "# Alerts",
        _MADE,
        "The rules are in [alerts/](../alerts/README.md), with an example for Alertmanager. Each alert has "
        "[a runbook](runbooks/README.md): what it means, how to tell the cases apart, what to do. All thresholds are "
        "in `kvexporter/rules/thresholds.py`.",
        "`page`: someone has to act now. `warning`: today, or soon enough that no page follows. `info`: to be known.",
        "Each alert has the labels `alertname`, `severity`, `job`, `instance` and `server` and those in the table, and "
        "no others, so that the same alert sent by Prometheus and by kvexporter itself is one for Alertmanager. Alerts "
        "of a host have no `server`. All have the annotations `summary`, `description`, `runbook_url` and "
        "`dashboard_url`.",
    ]
    for group in GROUPS:
        if group.alerts:
            parts += [f"## {_TITLES[group.name]}", group.about, _alerts(group)]
    recorded = [rule for group in GROUPS for rule in group.rules if isinstance(rule, RecordingRule)]
    parts += ["## Recorded series", "Named level:metric:operation; they look back over long times, once a minute."]
    parts += [f"`{rule.name}`\n\n```\n{rule.expr}\n```" for rule in recorded]
    parts += ["## Expressions"]
    parts += [f"`{alert.name}`\n\n```\n{alert.expr}\n```" for group in GROUPS for alert in group.alerts]
    return "\n\n".join(parts) + "\n"


def _alerts(group: RuleGroup) -> str:
    rows = (
        (f"[{alert.name}](runbooks/{alert.name}.md)", alert.severity, alert.when, _times(alert), _labels(alert))
        for alert in group.alerts
    )
    return table(("Alert", "Severity", "Fires when", "Goes on", "Labels"), rows)


def _times(alert: AlertRule) -> str:
    return f"{in_words(alert.keep)} after that" if alert.keep else "while that holds"


def _labels(alert: AlertRule) -> str:
    own = [f"`{name}`" for name in alert.labels if name not in ("job", "instance", "server")]
    fixed = [f'`{name}="{value}"`' for name, value in alert.fixed.items()]
    return ", ".join([*own, *fixed, *([] if "server" in alert.labels else ["no `server`"])])
