"""Texts: Prometheus' templates and the daemon say the same thing, and leave out what nobody knows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from kvexporter.rules.links import dashboard_template, dashboard_url
from kvexporter.rules.spans import in_words, span
from kvexporter.rules.words import Style, shown, template, told
from tests.support.prometheus import program

SHOWN: list[tuple[Style, float]] = [
    ("count", 0),
    ("count", 159069),
    ("count", 1048576),
    ("count", 49.6),
    ("decimal", 8.04),
    ("decimal", 19.65),
    ("percent", 0),
    ("percent", 0.9853),
    ("percent", 1.30004),
    ("percent", 0.00012345),
    ("duration", 0),
    ("duration", 20),
    ("duration", 60),
    ("duration", 299),
    ("duration", 3600),
    ("duration", 90061),
    ("bytes", 0),
    ("bytes", 1023),
    ("bytes", 1024),
    ("bytes", 6979321856),
    ("bytes", 134144000000),
    ("bytes", 2.0**52),
]

_FUNCTIONS = {
    "count": 'printf "%.0f"',
    "decimal": 'printf "%.1f"',
    "percent": "humanizePercentage",
    "duration": "humanizeDuration",
    "bytes": "humanize1024",
}


def test_numbers_are_shown_as_prometheus_shows_them(tmp_path: Path) -> None:
    """Judged by promtool, which runs Prometheus' own template functions."""
    rules, checks = [], []
    for number, (style, value) in enumerate(SHOWN):
        asked = {"shown": f"{{{{ $value | {_FUNCTIONS[style]} }}}}"}
        rules.append({"alert": f"A{number}", "expr": f"vector({value!r})", "annotations": asked})
        expected = [{"exp_annotations": {"shown": shown(value, style)}}]
        checks.append({"eval_time": "1m", "alertname": f"A{number}", "exp_alerts": expected})
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    suite = {"rule_files": ["rules.yaml"], "tests": [{"interval": "1m", "alert_rule_test": checks}]}
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(suite))
    command = [program("promtool"), "test", "rules", "suite.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_sentence_with_an_unknown_number_is_left_out() -> None:
    text = ("{server} is filling up.", "It is full in {left}.", "First: wait.")
    assert told(text, {"server": "main", "left": "20s"}) == "main is filling up.\nIt is full in 20s.\nFirst: wait."
    assert told(text, {"server": "main"}) == "main is filling up.\nFirst: wait."


def test_values_are_not_taken_for_placeholders() -> None:
    assert told(("{server}: {fill}.",), {"server": "{fill}", "fill": "9%"}) == "{fill}: 9%."


def test_a_query_asks_only_for_the_alerts_own_series() -> None:
    labels = ("job", "instance", "server", "slot")
    assert template(("Slot {slot}.", "It holds {slot_tokens}."), labels) == (
        "Slot {{ $labels.slot }}.\n"
        "{{- with $a := printf `llama_slot_tokens{job=%[1]q,instance=%[2]q,server=%[3]q,slot=%[4]q}` "
        "$labels.job $labels.instance $labels.server $labels.slot | query }}\n"
        'It holds {{ $a | first | value | printf "%.0f" }}.{{ end }}'
    )


def test_a_label_that_the_alert_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="code is no label"):
        template(("Exit code {code}.",), ("job", "instance", "server"))


def test_a_dashboard_is_opened_at_what_the_alert_is_about() -> None:
    labels = {"job": "kvexporter", "instance": "gpu1:9889", "server": "a b&c", "code": "127"}
    assert (
        dashboard_url("kvexporter-pool", labels)
        == "/d/kvexporter-pool?var-job=kvexporter&var-instance=gpu1%3A9889&var-server=a+b%26c"
    )
    assert dashboard_url("kvexporter-fleet", {"job": "kvexporter"}) == "/d/kvexporter-fleet?var-job=kvexporter"
    assert "server" not in dashboard_template("kvexporter-memory", ("job", "instance", "gpu"))


@pytest.mark.parametrize(
    ("seconds", "written", "said"),
    [
        (60, "1m", "1 minute"),
        (90, "90s", "90 seconds"),
        (600, "10m", "10 minutes"),
        (3600, "1h", "1 hour"),
        (43200, "12h", "12 hours"),
        (604800, "7d", "7 days"),
    ],
)
def test_times_are_written_in_their_largest_whole_unit(seconds: int, written: str, said: str) -> None:
    assert (span(seconds), in_words(seconds)) == (written, said)
