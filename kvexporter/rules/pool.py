"""Rules on the KV pool: it ran out, it is about to, or it can."""

from __future__ import annotations

from kvexporter.rules import thresholds as limit
from kvexporter.rules.links import FLEET_DASHBOARD, POOL_DASHBOARD
from kvexporter.rules.rule import SERVER_LABELS, AlertRule, RuleGroup, of, of_server
from kvexporter.rules.spans import in_words, span
from kvexporter.rules.thresholds import PoolCondition

_CAN_OVERFLOW = f"{of_server('llama_kv_pool_overcommit_ratio')} > {limit.OVERCOMMIT_RATIO:g}"
_WINDOW = span(limit.INCIDENT_WINDOW)


def _sign(condition: PoolCondition) -> str:
    bounds = (
        ("llama_kv_pool_committed_ratio", ">=", condition.committed_ratio),
        ("llama_kv_pool_demand_ratio", ">=", condition.demand_ratio),
        ("llama_kv_pool_seconds_to_full", "<", condition.seconds_to_full),
        ("llama_kv_pool_fill_ratio", ">=", condition.fill_ratio),
        ("llama_kv_pool_fill_peak_ratio", ">=", condition.fill_peak_ratio),
    )
    parts = [f"{of_server(metric)} {sign} {bound:g}" for metric, sign, bound in bounds if bound is not None]
    return parts[0] if len(parts) == 1 else f"({' and '.join(parts)})"


def _any_sign(conditions: tuple[PoolCondition, ...]) -> str:
    signs = "\n  or\n".join(f"  {_sign(condition)}" for condition in conditions)
    return f"(\n{signs}\n)\nand\n{_CAN_OVERFLOW}"


def _sign_words(condition: PoolCondition) -> str:
    parts = []
    if condition.committed_ratio is not None:
        parts.append(f"the running requests' whole prompts take {condition.committed_ratio:.0%} of the pool or more")
    if condition.demand_ratio is not None:
        parts.append(f"the running requests will need {condition.demand_ratio:.0%} of the pool or more")
    if condition.seconds_to_full is not None:
        parts.append(f"it is full in less than {condition.seconds_to_full:g} s")
    if condition.fill_ratio is not None:
        parts.append(f"its fill is {condition.fill_ratio:.0%} or more")
    if condition.fill_peak_ratio is not None:
        parts.append(f"its fill was {condition.fill_peak_ratio:.0%} or more in the last minute")
    return " and ".join(parts)


def _any_words(conditions: tuple[PoolCondition, ...]) -> str:
    return f"A pool that can overflow, and: {'; or '.join(map(_sign_words, conditions))}."


_NOW = (
    "Its slots at work hold {fill} of {capacity} tokens.",
    "With their whole prompts read they take {committed} of the pool.",
    "With answers as long as their limits allow they need {demand} of it.",
    "If it goes on like this the pool is full in {left}.",
    "Slot {biggest_slot} holds most, {biggest_tokens} tokens.",
)

CONTEXT_EXCEEDED = AlertRule(
    name="LlamaContextExceeded",
    severity="page",
    when=f"The shared pool ran out and running requests died, within the last {in_words(limit.INCIDENT_WINDOW)}.",
    # The time of the incident tells it exactly, the count where clocks differ. abs(): a clock ahead is not for ever.
    expr=f"""\
{of_server("abs(time() - llama_last_incident_timestamp_seconds)")} < {limit.INCIDENT_WINDOW}
or
{of_server(f'increase(llama_context_exceeded_total{{cause="pool"}}[{_WINDOW}])')} > 0""",
    summary="{server}: the shared KV pool ran out and running requests died",
    description=(
        "The slots of {server} on {instance} together needed more than the KV pool has, and every running request "
        "failed with `Context size has been exceeded`, whoever filled it.",
        f"Requests that died so in the last {in_words(limit.INCIDENT_WINDOW)}: {{died}}.",
        "In the latest incident slot {culprit_slot} held most, {culprit_tokens} of {capacity} tokens, "
        "and the slots together were {excess} over.",
        "The server goes on, and it will happen again: first end or compact the longest conversation, then see "
        "`kvexporter diagnose` for who held what and the runbook for what to change.",
    ),
    dashboard=POOL_DASHBOARD,
    fixed={"cause": "pool"},
)

REQUEST_TOO_LONG = AlertRule(
    name="LlamaRequestTooLong",
    severity="warning",
    when=f"A request larger than its own slot was refused, within the last {in_words(limit.INCIDENT_WINDOW)}.",
    expr=f"""{of_server(f'increase(llama_context_exceeded_total{{cause="slot"}}[{_WINDOW}])')} > 0""",
    summary="{server}: a request was larger than its slot",
    description=(
        "A client of {server} on {instance} sent or grew a request beyond its own slot's window; only that request "
        "failed.",
        f"Such requests in the last {in_words(limit.INCIDENT_WINDOW)}: {{too_long}}.",
        "A slot's window is {window} tokens.",
        "First: tell that client this limit, so that it compacts before it reaches it.",
    ),
    dashboard=POOL_DASHBOARD,
)

FILLING_UP = AlertRule(
    name="LlamaPoolFillingUp",
    severity="warning",
    when=_any_words(limit.POOL_WARN),
    expr=_any_sign(limit.POOL_WARN),
    summary="{server}: the KV pool is on its way to overflow",
    description=(
        "The shared KV pool of {server} on {instance} is filling up; when it is full every running request fails, "
        "whoever filled it.",
        *_NOW,
        "First: let the longest conversation end or compact, and start no new ones.",
    ),
    dashboard=POOL_DASHBOARD,
    keep=limit.POOL_WARN_KEEP,
)

ALMOST_FULL = AlertRule(
    name="LlamaPoolAlmostFull",
    severity="page",
    when=_any_words(limit.POOL_PAGE),
    expr=_any_sign(limit.POOL_PAGE),
    summary="{server}: the KV pool is about to overflow",
    description=(
        "The shared KV pool of {server} on {instance} is all but full; when it is full every running request fails, "
        "whoever filled it.",
        *_NOW,
        "First: stop the client of the biggest slot now, which saves the others' requests.",
    ),
    dashboard=POOL_DASHBOARD,
    keep=limit.POOL_PAGE_KEEP,
)

PRESSURE = AlertRule(
    name="LlamaPoolPressure",
    severity="warning",
    when=f"Batches found no room in the KV cache in the last {in_words(limit.PRESSURE_WINDOW)}, and no request has "
    "died of it.",
    # An incident is counted once it is over, which some builds tell only by half a minute of silence. The error's lines
    # are counted as they come.
    expr=f"""\
{of_server(f"increase(llama_kv_pressure_lines_total[{span(limit.PRESSURE_WINDOW)}])")} > 0
unless
{of_server(f"increase(llama_context_exceeded_log_lines_total[{span(limit.PRESSURE_WINDOW)}])")} > 0
unless
{of_server(f"increase(llama_context_exceeded_total[{span(limit.PRESSURE_WINDOW)}])")} > 0""",
    summary="{server}: batches find no room in the KV cache",
    description=(
        "The KV cache of {server} on {instance} had no room for a batch. The server then tries smaller batches and "
        "gives up idle slots' cache; no request has died of it so far, and this is the last sign before they do.",
        "Its slots at work hold {fill} of {capacity} tokens.",
        "Slot {biggest_slot} holds most, {biggest_tokens} tokens.",
        "With a sliding-window or hybrid model this happens below a fill of 100%.",
        "First: start no new long conversations, and look at the pool's dashboard.",
    ),
    dashboard=POOL_DASHBOARD,
)

OVERCOMMITTED = AlertRule(
    name="LlamaPoolOvercommitted",
    severity="info",
    when=f"The pool has promised its slots more tokens than it has for {in_words(limit.OVERCOMMIT_FOR)}.",
    expr=_CAN_OVERFLOW,
    summary="{server}: the KV pool promises more than it has",
    description=(
        "The slots of {server} on {instance} are together promised more tokens than their shared KV pool has, so it "
        "can run out.",
        "{slots} slots of {window} tokens are {promised} promised, and the pool has {capacity}.",
        "To promise only what there is, start it with `-np {slots} -kvu --kv-unified-per-slot {guaranteed}` (builds "
        "without that option: `-np {slots}` and no `-kvu`) and tell clients a window of {guaranteed}.",
        "To keep the window of {window}, start it with `-c {promised} -np {slots} -kvu --kv-unified-per-slot "
        "{window}` (builds without that option: `-c {promised} -np {slots}` and no `-kvu`), which takes more memory: "
        "`kvexporter plan` says how much.",
    ),
    dashboard=FLEET_DASHBOARD,
    hold=limit.OVERCOMMIT_FOR,
)

DEFERRED = AlertRule(
    name="LlamaRequestsDeferred",
    severity="warning",
    when=f"More than {limit.DEFERRED_REQUESTS} requests have waited for a slot for {in_words(limit.DEFERRED_FOR)}.",
    expr=f"{of_server('llama_requests_deferred')} > {limit.DEFERRED_REQUESTS}",
    summary="{server}: requests wait for a slot",
    description=(
        f"All slots of {{server}} on {{instance}} have been busy for {in_words(limit.DEFERRED_FOR)} and requests "
        "wait for one.",
        "Waiting: {deferred}; running: {running}.",
        "First: see whether a slot is stalled or runs for an abandoned request; if not, there are more clients than "
        "slots.",
    ),
    dashboard=POOL_DASHBOARD,
    hold=limit.DEFERRED_FOR,
)

STALLED = AlertRule(
    name="LlamaSlotStalled",
    severity="warning",
    when=f"Nothing of a running request has changed for {in_words(limit.STALLED_SECONDS)}.",
    expr=f"{of((*SERVER_LABELS, 'slot'), 'llama_slot_stalled_seconds')} > {limit.STALLED_SECONDS}",
    summary="{server}: slot {slot} is stalled",
    description=(
        "Slot {slot} of {server} on {instance} works on a request of which nothing changes: the server hangs, or the "
        "request was abandoned.",
        "It has stood still for {stalled}.",
        "It holds {slot_tokens} tokens of the pool meanwhile.",
        "First: see whether the other slots get on; if they do not either, the server hangs and needs a restart.",
    ),
    dashboard=POOL_DASHBOARD,
    labels=(*SERVER_LABELS, "slot"),
)

RUNS_ON = AlertRule(
    name="LlamaSlotRunsOn",
    severity="warning",
    when=f"A slot has worked on one request for more than {in_words(limit.TASK_AGE_SECONDS)}.",
    expr=f"{of((*SERVER_LABELS, 'slot'), 'llama_slot_task_age_seconds')} > {limit.TASK_AGE_SECONDS}",
    summary="{server}: slot {slot} runs on",
    description=(
        f"Slot {{slot}} of {{server}} on {{instance}} has worked on one request for more than "
        f"{in_words(limit.TASK_AGE_SECONDS)}, longer than any should: its client may be gone, or its answer has no "
        "end.",
        "It has run for {age}.",
        "It holds {slot_tokens} tokens of the pool, and more with each one that it writes.",
        "First: find its client and stop it; requests without `max_tokens` end only at the slot's limit.",
    ),
    dashboard=POOL_DASHBOARD,
    labels=(*SERVER_LABELS, "slot"),
)

POOL = RuleGroup(
    name="pool",
    about="The KV pool of each server: it ran out, it is about to, or it can; and requests that wait or hang.",
    rules=(
        CONTEXT_EXCEEDED,
        ALMOST_FULL,
        FILLING_UP,
        PRESSURE,
        REQUEST_TOO_LONG,
        STALLED,
        RUNS_ON,
        DEFERRED,
        OVERCOMMITTED,
    ),
)
