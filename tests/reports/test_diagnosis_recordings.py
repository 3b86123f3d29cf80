"""A diagnosis of every recording says in each form what its own lines and clients say it must (`expected.json`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kvexporter.diagnosing.reading import LogInput, read_stories
from kvexporter.reports.diagnosis import Diagnosis, diagnose
from kvexporter.reports.diagnosis_json import diagnoses_json
from kvexporter.reports.diagnosis_markdown import diagnoses_markdown
from kvexporter.reports.diagnosis_text import print_diagnoses
from kvexporter.reports.terminal import plain
from tests.support.diagnosing import EXPECTED
from tests.support.paths import RECORDINGS

GOLDEN = Path(__file__).parent / "golden" / "diagnose"
KEPT = (
    "agents-b8635",
    "b5541/idle_purge",
    "b6666/uneven_overflow",
    "b8635/prompt_too_long",
    "b8635/idle_purge",
    "b11434/per_slot_cap_with_overcommit",
    "b11434/uneven_overflow",
    "replay-b11434-full",
)
"""Recordings whose whole reports are kept, to be looked at when they change."""
FORMS = {"text": "txt", "json": "json", "markdown": "md"}


@cache
def diagnosed(name: str) -> tuple[Diagnosis, ...]:
    stories = read_stories(LogInput(journal_export=RECORDINGS / name / "journal.export"))
    return tuple(diagnose(story) for story in stories)


def shown(name: str, form: str) -> str:
    diagnoses = diagnosed(name)
    if form == "json":
        return diagnoses_json(diagnoses)
    if form == "markdown":
        return diagnoses_markdown(diagnoses)
    return plain(lambda console: print_diagnoses(diagnoses, console))


def number(text: str) -> int | None:
    return None if text == "?" else int(text.replace(",", ""))


# ---- JSON ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED)
def test_the_json_says_what_happened(name: str) -> None:
    expected = EXPECTED[name]
    (server,) = json.loads(shown(name, "json"))

    geometry = {key: value for key, value in server["geometry"].items() if key != "source"}
    assert geometry == expected["geometry"]
    for count in ("log_lines", "incidents", "requests_failed", "purges", "context_shifts", "answers_truncated"):
        assert server["counts"][count] == expected[count], count
    assert server["request_tokens"]["count"] == expected["releases"]
    assert (server["request_tokens"]["max"] or 0) == expected["largest_request_tokens"]
    details = [incident for incident in server["incidents"] if incident["cause"] == "pool"]
    assert [
        {
            "slot_tokens": {str(slot["slot"]): slot["tokens"] for slot in incident["slots"]},
            "sum_tokens": incident["sum_tokens"],
            "excess_tokens": incident["excess_tokens"],
            "unplaced_batch_tokens": incident["unplaced_batch_tokens"],
        }
        for incident in details
    ] == expected["incident_details"]
    assert all(incident["adds_up"] for incident in details)
    assert len(server["incidents"]) == sum(expected["incidents"].values())


# ---- text and Markdown ---------------------------------------------------------------------------------------------


def rows(text: str, form: str) -> dict[str, str]:
    """Label → value of the rows with a label."""
    pattern = r"^\| ([^|]+?) \| (.+) \|$" if form == "markdown" else r"^  (\S(?:.{0,22}?\S)?)  +(\S.*)$"
    return {label.replace("\\", ""): value for label, value in re.findall(pattern, text, re.MULTILINE)}


def tables(text: str, form: str) -> Iterator[dict[str, list[str]]]:
    """Of each incident: slot, or `sum`, → task, tokens, share."""
    heads = r"\| slot \| task \|.*\n\| ---.*\n" if form == "markdown" else r" +slot +task +tokens +share of the pool\n"
    for head in re.finditer(heads, text):
        table: dict[str, list[str]] = {}
        for line in text[head.end() :].splitlines():
            cells = line.strip("| ").split(" | ") if form == "markdown" else line.split()
            if not re.fullmatch(r"\d+|sum", cells[0].strip() if cells else ""):
                break
            table[cells[0].strip()] = [cell.strip() for cell in cells[1:]]
        yield table


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("name", EXPECTED)
def test_what_people_read_says_what_happened(name: str, form: str) -> None:
    expected, text = EXPECTED[name], shown(name, form)
    found, geometry = rows(text, form), EXPECTED[name]["geometry"]

    assert found["slots"] == f"{geometry['slots']}, each of up to {geometry['slot_context_tokens']:,} tokens"
    shared = "shared by all slots" if geometry["pool_shared"] else "not shared"
    assert found["pool"] == f"{geometry['pool_capacity_tokens']:,} tokens, {shared}"
    promised, ratio = geometry["promised_tokens"], geometry["overcommit_ratio"]
    assert found["promised"] == f"{promised:,} tokens, {ratio:.2f} times what there is"
    assert found["sure for each slot"] == f"{geometry['guaranteed_tokens']:,} tokens"
    for label, cause in (("pool ran out", "pool"), ("own slot's limit", "slot")):
        times, died = (number(part.split()[0]) for part in found[label].split(", "))
        assert (times, died) == (expected["incidents"][cause], expected["requests_failed"][cause])
    assert number(found["lines naming the error"]) == expected["log_lines"]
    assert number(found["idle caches given up"]) == expected["purges"]
    assert number(found["context shifts"]) == expected["context_shifts"]
    assert number(found["answers cut off"]) == expected["answers_truncated"]
    assert number(found["requests ended"]) == expected["releases"]
    largest = found["largest"].split()[0]
    assert (number(largest) or 0) == expected["largest_request_tokens"]


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("name", [name for name in EXPECTED if EXPECTED[name]["incident_details"]])
def test_the_incidents_tables_are_right_to_the_last_token(name: str, form: str) -> None:
    text, capacity = shown(name, form), EXPECTED[name]["geometry"]["pool_capacity_tokens"]
    details = EXPECTED[name]["incident_details"]
    found = list(tables(text, form))

    assert len(found) == len(details)
    for table, detail in zip(found, details, strict=True):
        total = table.pop("sum")
        assert {slot: number(cells[1]) for slot, cells in table.items()} == detail["slot_tokens"]
        assert [cells[2].replace("\\", "") for cells in table.values()] == [
            f"{tokens / capacity:.1%}" for tokens in detail["slot_tokens"].values()
        ]
        assert number(total[-2]) == detail["sum_tokens"]
        words = " ".join(text.replace("\n", " ").split())
        assert f"{detail['excess_tokens']:,} more than the pool's {capacity:,} tokens: exactly the batch" in words


@pytest.mark.parametrize("name", EXPECTED)
def test_text_fits_eighty_columns(name: str) -> None:
    assert max(map(len, shown(name, "text").splitlines())) <= 80


# ---- verdicts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED)
def test_the_verdict_is_what_clients_saw(name: str) -> None:
    expected = EXPECTED[name]
    saw = expected["clients_saw"]
    if saw.get("500"):
        code = "shared_pool"
    elif saw.get("400") or expected["answers_truncated"] or expected["context_shifts"]:
        code = "one_oversized_session"
    elif expected["releases"]:
        code = "not_a_context_problem"
    else:
        code = "too_little_to_tell"

    (diagnosis,) = diagnosed(name)

    assert diagnosis.verdict.code == code
    assert diagnosis.verdict.found == (code in ("shared_pool", "one_oversized_session"))
    assert bool(diagnosis.advice) == diagnosis.verdict.found


# ---- whole reports -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", KEPT)
def test_a_kept_report_is_the_same(name: str, form: str) -> None:
    """To keep what it says now, after looking at it: python -m tests.reports.test_diagnosis_recordings."""
    assert shown(name, form) == golden_file(name, form).read_text()


def golden_file(name: str, form: str) -> Path:
    return GOLDEN / f"{name.replace('/', '-')}.{FORMS[form]}"


def keep() -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        for form in FORMS:
            golden_file(name, form).write_text(shown(name, form))


if __name__ == "__main__":
    keep()
