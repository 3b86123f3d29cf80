"""What alerts say: sentences with placeholders, told by Prometheus' templates and by the daemon in the same words.

A sentence with a number that is unknown is left out, so a text never shows an empty place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kvexporter.rules import thresholds as limit
from kvexporter.rules.records import SPEED_NOW, SPEED_USUAL
from kvexporter.rules.spans import span

Style = Literal["count", "decimal", "percent", "duration", "bytes", "label"]

_PLACE = re.compile(r"\{(\w+)\}")
_BY = "job, instance, server, slot"

_MATCHERS = {
    "$server": ("job", "instance", "server"),
    "$host": ("job", "instance"),
    "$slot": ("slot",),
    "$gpu": ("gpu",),
}

LABELS = ("server", "instance", "slot", "code", "gpu", "collector")
"""Placeholders that are labels of the alert."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text. `query` is asked by Prometheus' template: it gives one series, or none when unknown."""

    query: str
    """PromQL. `$server`, `$host`, `$slot` and `$gpu` stand for matchers of what the alert is about."""
    style: Style
    label: str = ""
    """Style label: which of the result's labels is shown instead of its value."""


def _counted(counter: str, window: int) -> str:
    # Unlike increase() it does not extrapolate, so that it gives whole numbers; after a reset it gives nothing or less.
    return f"({counter} - min_over_time({counter}[{span(window)}])) > 0"


def _lost(counter: str) -> str:
    return _counted(counter, limit.INCIDENT_WINDOW)


_BIGGEST = (
    f"topk(1, max by ({_BY}) (llama_slot_tokens{{$server}}) and on ({_BY}) llama_slot_processing{{$server}} == 1)"
)
_CULPRIT = "topk(1, llama_last_incident_slot_tokens{$server})"

NUMBERS: dict[str, Number] = {
    # The pool now.
    "fill": Number("llama_kv_pool_fill_ratio{$server}", "percent"),
    "committed": Number("llama_kv_pool_committed_ratio{$server}", "percent"),
    "demand": Number("llama_kv_pool_demand_ratio{$server}", "percent"),
    "left": Number("round(llama_kv_pool_seconds_to_full{$server})", "duration"),
    "running": Number("sum(llama_slot_processing{$server})", "count"),
    "deferred": Number("llama_requests_deferred{$server}", "count"),
    "biggest_slot": Number(_BIGGEST, "label", "slot"),
    "biggest_tokens": Number(_BIGGEST, "count"),
    "slot_tokens": Number("llama_slot_tokens{$server,$slot}", "count"),
    "stalled": Number("round(llama_slot_stalled_seconds{$server,$slot})", "duration"),
    "age": Number("round(llama_slot_task_age_seconds{$server,$slot})", "duration"),
    # Its shape.
    "capacity": Number("llama_kv_pool_capacity_tokens{$server}", "count"),
    "slots": Number("llama_slots{$server}", "count"),
    "window": Number("llama_slot_context_tokens{$server}", "count"),
    "promised": Number("llama_kv_pool_promised_tokens{$server}", "count"),
    "guaranteed": Number("llama_slot_guaranteed_tokens{$server}", "count"),
    # Its incidents.
    "died": Number(_lost('llama_context_exceeded_requests_total{$server,cause="pool"}'), "count"),
    "too_long": Number(_lost('llama_context_exceeded_requests_total{$server,cause="slot"}'), "count"),
    "culprit_slot": Number(_CULPRIT, "label", "slot"),
    "culprit_tokens": Number(_CULPRIT, "count"),
    "excess": Number("llama_last_incident_excess_tokens{$server}", "count"),
    # The server.
    "unit": Number('llama_server_info{$server,unit!=""}', "label", "unit"),
    "model": Number('llama_server_info{$server,model!=""}', "label", "model"),
    "restarts": Number(f"round(increase(llama_unit_restarts_total{{$server}}[{span(limit.CRASH_WINDOW)}]))", "count"),
    "resident": Number("llama_process_resident_memory_bytes{$server}", "bytes"),
    "memory_limit": Number('llama_cgroup_memory_bytes{$server,kind="limit"}', "bytes"),
    "growth": Number('llama_memory_growth_bytes{$server,kind="anon"}', "bytes"),
    "at_ready": Number('llama_memory_at_ready_bytes{$server,kind="anon"}', "bytes"),
    "faults": Number(
        f"rate(llama_process_major_page_faults_total{{$server}}[{span(limit.MAJOR_FAULTS_WINDOW)}])", "count"
    ),
    "speed": Number(f"{SPEED_NOW}{{$server}}", "decimal"),
    "usual_speed": Number(f"{SPEED_USUAL}{{$server}}", "decimal"),
    # The host.
    "unified_available": Number("llama_unified_memory_available_bytes{$host}", "bytes"),
    "unified_total": Number("llama_unified_memory_total_bytes{$host}", "bytes"),
    "gpu_used": Number("max(llama_gpu_memory_used_bytes{$host,$gpu})", "bytes"),
    "gpu_total": Number("max(llama_gpu_memory_total_bytes{$host,$gpu})", "bytes"),
    "gpu_name": Number("topk(1, llama_gpu_memory_total_bytes{$host,$gpu})", "label", "name"),
    "gpu_biggest": Number("topk(1, llama_gpu_process_memory_bytes{$host,$gpu})", "label", "server"),
    # The exporter.
    "target": Number("up{$host}", "label", "instance"),
    "lag": Number(f"round(kvexporter_journal_lag_seconds{{$host}} > {limit.JOURNAL_LAG_SECONDS})", "duration"),
    "suppressed": Number(_counted("kvexporter_journal_suppressed_lines_total{$server}", limit.COUNTS_WINDOW), "count"),
    "gaps": Number(_counted("kvexporter_journal_gaps_total{$host}", limit.COUNTS_WINDOW), "count"),
    "store_errors": Number(_counted("kvexporter_store_errors_total{$host}", limit.STORE_WINDOW), "count"),
}
"""Placeholders that are numbers."""

Text = tuple[str, ...]
"""Sentences, with placeholders in braces."""


def told(text: Text, values: Mapping[str, str]) -> str:
    """Give the text, a line per sentence, with `values` for placeholders; without those that have an unknown one."""
    return "\n".join(
        _PLACE.sub(lambda found: values[found[1]], sentence)
        for sentence in text
        if all(name in values for name in _PLACE.findall(sentence))
    )


def shown(value: float, style: Style) -> str:
    """Give a number as Prometheus' templates show it."""
    if style == "count":
        return f"{value:.0f}"
    if style == "decimal":
        return f"{value:.1f}"
    if style == "percent":
        return f"{value * 100:.4g}%"
    if style == "bytes":
        return _bytes(value)
    return _duration(round(value))


def template(text: Text, labels: tuple[str, ...]) -> str:
    """Give the text as a template of Prometheus, for an alert that has `labels`."""
    return "\n".join(_sentence(sentence, labels) for sentence in text)


def placeholders(text: Text) -> tuple[str, ...]:
    """Name the text's placeholders, each once."""
    return tuple(dict.fromkeys(name for sentence in text for name in _PLACE.findall(sentence)))


def query(name: str, labels: Mapping[str, str]) -> str:
    """Give a number's PromQL for an alert with these labels, as its template asks it."""
    text = NUMBERS[name].query
    for marker, names in _MATCHERS.items():
        text = text.replace(marker, ",".join(f"{label}={_quoted(labels.get(label, ''))}" for label in names))
    return text


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _sentence(sentence: str, labels: tuple[str, ...]) -> str:
    names = tuple(dict.fromkeys(_PLACE.findall(sentence)))
    asked = dict.fromkeys(NUMBERS[name].query for name in names if name not in LABELS)
    variables = {text: f"${chr(ord('a') + number)}" for number, text in enumerate(asked)}
    # `{{-` takes away the line's end before it, which comes again only with the sentence.
    begin = "\n".join(f"{{{{- with {variable} := {_asking(text)} }}}}" for text, variable in variables.items())

    def place(found: re.Match[str]) -> str:
        name = found[1]
        if name in LABELS:
            if name not in labels:
                raise ValueError(f"{name} is no label of this alert")
            return f"{{{{ $labels.{name} }}}}"
        number = NUMBERS[name]
        return f"{{{{ {variables[number.query]} | first | {_showing(number)} }}}}"

    body = _PLACE.sub(place, sentence)
    return f"{begin}\n{body}{'{{ end }}' * len(variables)}" if variables else body


def _asking(text: str) -> str:
    used: list[str] = []
    for marker, names in _MATCHERS.items():
        if marker in text:
            used += [name for name in names if name not in used]
            text = text.replace(marker, ",".join(f"{name}=%[{used.index(name) + 1}]q" for name in names))
    return f"printf `{text}` {' '.join(f'$labels.{name}' for name in used)} | query"


def _showing(number: Number) -> str:
    if number.style == "count":
        return 'value | printf "%.0f"'
    if number.style == "decimal":
        return 'value | printf "%.1f"'
    if number.style == "percent":
        return "value | humanizePercentage"
    if number.style == "bytes":
        return "value | humanize1024"
    if number.style == "duration":
        return "value | humanizeDuration"
    return f'label "{number.label}"'


def _bytes(value: float) -> str:
    prefixes = ["", "ki", "Mi", "Gi", "Ti", "Pi"]
    while abs(value) >= 1024 and len(prefixes) > 1:
        value /= 1024
        del prefixes[0]
    return f"{value:.4g}{prefixes[0]}"


def _duration(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h {minutes}m {seconds}s"
    return f"{hours}h {minutes}m {seconds}s" if hours else f"{minutes}m {seconds}s"
