"""Rules on speed: slower than the server's own week."""

from __future__ import annotations

from kvexporter.rules import thresholds as limit
from kvexporter.rules.links import FLEET_DASHBOARD
from kvexporter.rules.records import SPEED_NOW, SPEED_USUAL
from kvexporter.rules.rule import AlertRule, RuleGroup, of_server
from kvexporter.rules.spans import in_words, span

_COUNT = "llama_generation_tokens_per_second_count"

SLOW = AlertRule(
    name="LlamaGenerationSlow",
    severity="warning",
    when=f"Requests of the last {in_words(limit.SLOW_WINDOW)} were answered at less than {limit.SLOW_RATIO:.0%} of "
    f"the mean speed of the last {in_words(limit.SLOW_BASELINE)}, for {in_words(limit.SLOW_FOR)}. At least "
    f"{limit.SLOW_REQUESTS} requests, and {limit.SLOW_BASELINE_REQUESTS} in all that time.",
    expr=f"""\
{SPEED_NOW} < {limit.SLOW_RATIO:g} * {SPEED_USUAL}
and
{of_server(f"increase({_COUNT}[{span(limit.SLOW_WINDOW)}])")} >= {limit.SLOW_REQUESTS}
and
{of_server(f"increase({_COUNT}[{span(limit.SLOW_BASELINE)}])")} >= {limit.SLOW_BASELINE_REQUESTS}""",
    summary=f"{{server}}: answers come at less than {limit.SLOW_RATIO:.0%} of the usual speed",
    description=(
        "Requests to {server} on {instance} are answered much more slowly than in its own last week.",
        f"The mean of the last {in_words(limit.SLOW_WINDOW)} is {{speed}} tokens per second; usual are "
        "{usual_speed}.",
        "Its slots at work hold {fill} of the pool.",
        "First: see whether more requests run at once than usual (each is slower then), and whether weights are "
        "re-read from disk or the GPU is throttled.",
    ),
    dashboard=FLEET_DASHBOARD,
    hold=limit.SLOW_FOR,
)

SPEED = RuleGroup(name="speed", about="Answers slower than the server's own week.", rules=(SLOW,))
