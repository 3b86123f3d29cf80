"""What a query names: metrics with their matchers, ranges and functions."""

from __future__ import annotations

from dataclasses import dataclass

import promql_parser


@dataclass(frozen=True, slots=True)
class Selected:
    """One selector of a query."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    """(label, `=`, `!=`, `=~` or `!~`, value)"""
    function: str
    """The function that takes its range; empty for one without a range."""
    seconds: float | None
    """Its range; None without one."""

    @property
    def labels(self) -> set[str]:
        return {label for label, _, _ in self.matchers}


def selectors(query: str) -> list[Selected]:
    """All selectors of a query. Raises ValueError if it is no PromQL."""
    found: list[Selected] = []
    taken: dict[str, str] = {}

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.Call):
            for argument in node.args:
                if isinstance(argument, promql_parser.MatrixSelector):
                    taken[str(argument)] = node.func.name
        elif isinstance(node, promql_parser.MatrixSelector):
            name = taken.get(str(node), "")
            found.append(_selected(node.vector_selector, name, node.range.total_seconds()))
        elif isinstance(node, promql_parser.VectorSelector):
            found.append(_selected(node, "", None))

    promql_parser.walk(promql_parser.parse(query), visit)
    # The selector inside a range is visited too.
    ranged = {(one.metric, one.matchers) for one in found if one.seconds is not None}
    return [one for one in found if one.seconds is not None or (one.metric, one.matchers) not in ranged]


def grouped(query: str) -> set[str]:
    """All labels that aggregations of a query keep."""
    labels: set[str] = set()

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            labels.update(node.modifier.labels)

    promql_parser.walk(promql_parser.parse(query), visit)
    return labels


def _selected(node: promql_parser.VectorSelector, function: str, seconds: float | None) -> Selected:
    kinds = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
    matchers = tuple((one.name, kinds[str(one.op).rpartition(".")[2]], one.value) for one in node.matchers.matchers)
    return Selected(node.name or "", matchers, function, seconds)
