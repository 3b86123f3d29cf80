"""Recording rules: what looks back over long times, asked once a minute and not at every look at a dashboard."""

from __future__ import annotations

from kvexporter.rules import thresholds as limit
from kvexporter.rules.records import DIED, GROWTH, REQUEST_P95, SPEED_NOW, SPEED_USUAL
from kvexporter.rules.rule import SERVER_LABELS, RecordingRule, RuleGroup
from kvexporter.rules.spans import span

_BY = ", ".join(SERVER_LABELS)
_SPEED = "llama_generation_tokens_per_second"


def _mean(window: int) -> str:
    # The sums are divided, not the means added. Without requests there is no mean, and no NaN.
    count = f"sum by ({_BY}) (rate({_SPEED}_count[{span(window)}]))"
    return f"sum by ({_BY}) (rate({_SPEED}_sum[{span(window)}]))\n/\n({count} > 0)"


RECORDING = RuleGroup(
    name="recording",
    about="Recorded series for alerts and dashboards.",
    rules=(
        RecordingRule(name=SPEED_NOW, expr=_mean(limit.SLOW_WINDOW)),
        RecordingRule(name=SPEED_USUAL, expr=_mean(limit.SLOW_BASELINE)),
        RecordingRule(
            name=REQUEST_P95,
            expr=f"histogram_quantile(0.95, sum by ({_BY}, le) "
            f"(rate(llama_request_tokens_bucket[{span(limit.SLOW_BASELINE)}]))) >= 0",
        ),
        RecordingRule(name=DIED, expr=f"sum by ({_BY}, cause) (increase(llama_context_exceeded_requests_total[1d]))"),
        RecordingRule(
            name=GROWTH, expr=f'max by ({_BY}) (min_over_time(llama_memory_growth_bytes{{kind="anon"}}[1h]))'
        ),
    ),
    interval=60,
)
