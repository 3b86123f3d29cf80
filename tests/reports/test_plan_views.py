"""A plan as text, JSON and Markdown."""

from __future__ import annotations

import json
import re
import subprocess
from io import StringIO

import pytest
from rich.console import Console

from kvexporter.reports.plan import Plan, make_plan
from kvexporter.reports.plan_json import plan_json
from kvexporter.reports.plan_markdown import plan_markdown
from kvexporter.reports.plan_text import continued_lines, print_plan
from kvexporter.reports.quantities import parse_size, share_words, size_words
from kvexporter.reports.terminal import plain
from kvexporter.sizing import RequestSizeFacts, SizingFacts

SIZES = RequestSizeFacts((1_000, 44_000, 131_072), 44_000, 131_072, 131_072)
GB10 = SizingFacts(4, 262_144, 262_144, True, 262_144, 48 * 1024.0, "f16", "f16", 64 << 30)
PLAN = make_plan("main", GB10, SIZES, (("today", "4 slots"), ("requests", "3 measured")), ("mind this",))
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def plan_text(plan: Plan, *, clients: bool = False) -> str:
    return plain(lambda console: print_plan(plan, console, clients=clients))


def on_terminal(plan: Plan) -> str:
    file = StringIO()
    print_plan(plan, Console(file=file, width=80, force_terminal=True, highlight=False), clients=True)
    return file.getvalue()


def test_piped_text_is_plain_and_fits_80_columns() -> None:
    text = plan_text(PLAN, clients=True)
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_text_fits_80_columns_with_the_largest_numbers() -> None:
    sizes = RequestSizeFacts(p95=7_000_000, largest=8_000_000)
    facts = SizingFacts(256, 8_000_000, 8_000_000, True, None, 1 << 20, "f16", "f16", 1 << 40)
    text = plan_text(make_plan("x" * 60, facts, sizes, ()))
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_table_has_what_problem_md_has() -> None:
    text = plan_text(PLAN)
    assert re.search(r"as it is, overcommitted +65,536 +66\.7 % +12\.00 GiB +52\.00 GiB", text)
    assert re.search(r"unified, capped +131,072 +100\.0 % +24\.00 GiB +40\.00 GiB", text)
    assert "-c 524288 -np 4 -kvu --kv-unified-per-slot 131072\n" in text
    assert "note: mind this" in text


def test_a_terminal_has_colours_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    colours = re.compile(r"\x1b\[[0-9;]*3[0-7]")
    assert colours.search(on_terminal(PLAN))
    monkeypatch.setenv("NO_COLOR", "1")
    text = on_terminal(PLAN)
    assert not colours.search(text)
    assert max(len(ANSI.sub("", line)) for line in text.splitlines()) <= 80


def test_names_cannot_move_the_cursor() -> None:
    plan = make_plan("a\x1b[2Jb", GB10, SIZES, ())
    assert "\x1b" not in plan_text(plan)
    assert "\x1b" not in plan_markdown(plan)


def test_flags_too_long_for_a_line_go_on_where_a_shell_takes_them_as_one_command() -> None:
    flags = ("-c", "1048576", "-np", "4", "-kvu", "--kv-unified-per-slot", "262144", "-ctk", "q8_0", "-fa", "on")
    lines = list(continued_lines(flags, 40))
    assert len(lines) > 1
    assert all(len(line) <= 40 for line in lines)
    command = "printf '%s\\n' x " + "\n".join(lines)
    shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["x", *flags]
    assert not any(line.endswith(("-c \\", "--kv-unified-per-slot \\")) for line in lines)


def test_json_has_all_of_it_and_null_for_the_unknown() -> None:
    found = json.loads(plan_json(PLAN, clients=True))
    assert found["request_tokens"] == {"count": 3, "p50": 44_000, "p95": 131_072, "max": 131_072}
    assert found["today"]["pool_capacity_tokens"] == 262_144
    assert found["client_window_tokens"] == 131_072
    first = found["configurations"][found["first_enough"]]
    assert (first["guaranteed_tokens"], first["fitting_ratio"], first["overcommitted"]) == (131_072, 1.0, False)
    bare: Plan = make_plan(None, SizingFacts(2), RequestSizeFacts(p95=500), ())
    unknown = json.loads(plan_json(bare))
    assert unknown["server"] is None
    assert unknown["memory_bytes"] is None
    assert unknown["request_tokens"]["count"] is None
    assert unknown["configurations"][0]["kv_bytes"] is None
    assert "client_window_tokens" not in unknown


def test_markdown_is_one_table_whose_cells_cannot_be_broken_out_of() -> None:
    plan = make_plan("a|b<c>`d`", GB10, SIZES, (("today", "x|y"),))
    lines = plan_markdown(plan, clients=True).splitlines()
    assert lines[0] == "## Plan for a\\|b&lt;c>'d'"
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) == 1 + len(plan.configurations)
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {8}
    assert "`-c 1048576 -np 4 -kvu --kv-unified-per-slot 262144 -ctk q8_0 -ctv q8_0 -fa on`" in "\n".join(rows)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("16G", 16 << 30), ("512m", 512 << 20), ("1.5GiB", 3 << 29), ("2 TB", 2 << 40), ("100KiB", 102_400)],
)
def test_sizes_are_read_in_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "0", "16X", "1e9", "9999999999T", "٣G"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected bytes, or a size such as 512M or 16G"):
        parse_size(text)


def test_sizes_and_shares_are_said_as_people_read_them() -> None:
    assert [size_words(size) for size in (None, 0, 1023, 1 << 20, 1020 << 20, -(646 << 20))] == [
        *("?", "0 B", "1,023 B", "1.00 MiB", "1,020 MiB", "-646 MiB")
    ]
    assert [share_words(share) for share in (None, 0.0, 0.0001, 0.5, 0.9999, 1.0)] == [
        *("?", "0.0 %", "< 0.1 %", "50.0 %", "> 99.9 %", "100.0 %")
    ]
