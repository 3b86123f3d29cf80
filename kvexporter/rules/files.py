"""The rules as files: one per subject for Prometheus, and one with all of them for its operator on Kubernetes."""

from __future__ import annotations

from typing import Any

import yaml

from kvexporter.rules.groups import GROUPS
from kvexporter.rules.rule import AlertRule, RecordingRule, RuleGroup
from kvexporter.rules.spans import span

_MADE = "# Made by `python -m kvexporter.rules` from kvexporter/rules/: change that, not this file."


def files() -> dict[str, str]:
    """Give the text of each file, by its name in alerts/."""
    made = {
        f"{group.name}.yaml": f"{_MADE}\n# {group.about}\n{_yaml({'groups': [group_fields(group)]})}"
        for group in GROUPS
    }
    return {
        **made,
        "prometheusrule.yaml": f"{_MADE}\n# All rules for Prometheus' operator.\n{_yaml(operator_fields())}",
    }


def group_fields(group: RuleGroup) -> dict[str, Any]:
    """Give a group as Prometheus reads it."""
    interval = {"interval": span(group.interval)} if group.interval else {}
    return {"name": f"kvexporter-{group.name}", **interval, "rules": [_rule_fields(rule) for rule in group.rules]}


def operator_fields() -> dict[str, Any]:
    """Give all groups as a PrometheusRule."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "kvexporter", "labels": {"app.kubernetes.io/name": "kvexporter"}},
        "spec": {"groups": [group_fields(group) for group in GROUPS]},
    }


def _rule_fields(rule: AlertRule | RecordingRule) -> dict[str, Any]:
    if isinstance(rule, RecordingRule):
        return {"record": rule.name, "expr": rule.expr}
    fields: dict[str, Any] = {"alert": rule.name, "expr": rule.expr}
    if rule.hold:
        fields["for"] = span(rule.hold)
    if rule.keep:
        fields["keep_firing_for"] = span(rule.keep)
    return {**fields, "labels": rule.rule_labels, "annotations": rule.annotations}


class _Dumper(yaml.SafeDumper):
    """Writes expressions of several lines as such, and indents lists."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists too, as most rule files do."""
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        """Write everything out."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _yaml(fields: dict[str, Any]) -> str:
    # Lines are never folded: where to fold differs by version, and the files are compared.
    return yaml.dump(fields, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)
