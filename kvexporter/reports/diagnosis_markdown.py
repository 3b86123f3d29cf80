"""A diagnosis as Markdown, to be pasted into an issue or a report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvexporter.reports import diagnosis_parts as parts
from kvexporter.reports.advice import Advice
from kvexporter.reports.diagnosis import Diagnosis
from kvexporter.reports.incident_table import COLUMNS, incident_remarks, incident_rows, incident_title, moment
from kvexporter.reports.quantities import size_words

_WIDTH = 100


def diagnoses_markdown(diagnoses: Sequence[Diagnosis]) -> str:
    """Give the text."""
    return "\n\n".join(block for diagnosis in diagnoses for block in _blocks(diagnosis)) + "\n"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> str:
    """A table; with `numbers` its columns stand at the right."""
    rule = "---:" if numbers else "---"
    lines = [head, [rule] * len(head), *rows]
    return "\n".join(f"| {' | '.join(escaped(cell) for cell in line)} |" for line in lines)


def escaped(text: str) -> str:
    """Text that a log or a unit's name may have chosen, so that it stays text."""
    for character in "\\|`*_<>[]":
        text = text.replace(character, f"\\{character}")
    return text


def _blocks(diagnosis: Diagnosis) -> Iterator[str]:
    story = diagnosis.story
    yield f"## {escaped(parts.title(diagnosis))}"
    yield f"**{escaped(diagnosis.verdict.text)}**"
    if when := parts.period(diagnosis):
        yield f"{when}."
    yield markdown_table(("The pool", ""), parts.pool_rows(diagnosis))
    yield markdown_table(("What the log tells", ""), parts.count_rows(diagnosis))
    yield markdown_table(("Requests", ""), parts.size_rows(diagnosis))
    if diagnosis.clients:
        yield markdown_table(("Who asked", "requests", "failed"), parts.client_rows(diagnosis))
    if any(story.counters.incidents.values()):
        yield f"### {parts.incidents_title(diagnosis)}"
        if totals := parts.totals_sentence(diagnosis):
            yield totals
    for incident in story.incidents:
        when = moment(incident.started, since_start=story.since_start) if story.has_times else ""
        yield f"#### {incident_title(incident, when)}"
        if incident.slots:
            yield markdown_table(COLUMNS, incident_rows(incident), numbers=True)
        if remarks := incident_remarks(incident):
            yield " ".join(remarks)
    if diagnosis.advice:
        yield "### What to change, cheapest first"
        yield "\n".join(line for number, advice in enumerate(diagnosis.advice, 1) for line in _advice(number, advice))
    if diagnosis.notes:
        yield "### Notes"
        yield "\n".join(f"- {escaped(parts.sentence(note))}." for note in diagnosis.notes)


def _advice(number: int, advice: Advice) -> Iterator[str]:
    memory = f" KV cache {size_words(advice.kv_bytes)}." if advice.kv_bytes is not None else ""
    yield f"{number}. {escaped(parts.sentence(advice.why))}.{memory}"
    if advice.flags:
        yield f"   `{' '.join(advice.flags)}`"
    if advice.flags_any_build:
        yield f"   (on builds without `--kv-unified-per-slot`: `{' '.join(advice.flags_any_build)}`)"
