"""A diagnosis for people: tables and colours on a terminal, plain text of at most 80 columns elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvexporter.reports import diagnosis_parts as parts
from kvexporter.reports.advice import Advice
from kvexporter.reports.diagnosis import Diagnosis
from kvexporter.reports.incident_table import COLUMNS, incident_remarks, incident_rows, incident_title, moment
from kvexporter.reports.quantities import size_words
from kvexporter.snapshot import Incident

_INDENT = 2
_LABELS = 24


def print_diagnoses(diagnoses: Sequence[Diagnosis], console: Console) -> None:
    """Write all of them."""
    for number, diagnosis in enumerate(diagnoses):
        if number:
            console.print()
        _Writer(console, diagnosis).write()


def incident_table(incident: Incident) -> Table:
    """Who held what."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for slot, task, tokens, share in incident_rows(incident):
        style = "bold" if slot == str(incident.biggest_slot) and len(incident.slots) > 1 else None
        table.add_row(Text(slot), Text(task), Text(tokens), Text(share), style=style)
    return table


class _Writer:
    """Writes one server's diagnosis."""

    def __init__(self, console: Console, diagnosis: Diagnosis) -> None:
        self._console = console
        self._diagnosis = diagnosis

    def write(self) -> None:
        diagnosis = self._diagnosis
        self._line(parts.title(diagnosis), "bold")
        if period := parts.period(diagnosis):
            self._line(period, "dim")
        self._space()
        self._line(diagnosis.verdict.text, "bold red" if diagnosis.verdict.found else "bold green")
        self._rows("The pool", parts.pool_rows(diagnosis))
        self._rows("What the log tells", parts.count_rows(diagnosis))
        self._rows("Requests", parts.size_rows(diagnosis))
        self._clients()
        self._incidents()
        self._advice()
        self._notes()

    def _clients(self) -> None:
        if not self._diagnosis.clients:
            return
        self._heading("Who asked")
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
        table.add_column("address")
        table.add_column("requests", justify="right")
        table.add_column("failed", justify="right")
        for row in parts.client_rows(self._diagnosis):
            table.add_row(*(Text(cell) for cell in row))
        self._indented(table)

    def _incidents(self) -> None:
        story = self._diagnosis.story
        if not any(story.counters.incidents.values()):
            return
        self._heading(parts.incidents_title(self._diagnosis))
        if totals := parts.totals_sentence(self._diagnosis):
            self._indented(Text(totals))
        for number, incident in enumerate(story.incidents):
            if number or totals:
                self._space()
            when = moment(incident.started, since_start=story.since_start) if story.has_times else ""
            self._indented(Text(incident_title(incident, when), "yellow"))
            if incident.slots:
                self._indented(incident_table(incident), 2)
            for remark in incident_remarks(incident):
                self._indented(Text(remark))

    def _advice(self) -> None:
        if not self._diagnosis.advice:
            return
        self._heading("What to change, cheapest first")
        for number, advice in enumerate(self._diagnosis.advice, 1):
            self._one_advice(number, advice)

    def _one_advice(self, number: int, advice: Advice) -> None:
        memory = f"; KV cache {size_words(advice.kv_bytes)}" if advice.kv_bytes is not None else ""
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(justify="right", width=2)
        table.add_column(overflow="fold")
        table.add_row(Text(f"{number}."), Text(f"{parts.sentence(advice.why)}{memory}"))
        self._indented(table)
        for flags, note in ((advice.flags, ""), (advice.flags_any_build, "on builds without --kv-unified-per-slot:")):
            if flags and note:
                self._indented(Text(note, "dim"), 3)
            for line in parts.flag_lines(flags, self._console.width - 3 * _INDENT):
                self._indented(Text(line, "cyan"), 3)

    def _notes(self) -> None:
        if not self._diagnosis.notes:
            return
        self._heading("Notes")
        for note in self._diagnosis.notes:
            self._indented(Text(parts.sentence(note) + "."))

    def _rows(self, heading: str, rows: Sequence[parts.Row]) -> None:
        self._heading(heading)
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=_LABELS, style="dim")
        table.add_column(overflow="fold")
        for label, value in rows:
            table.add_row(Text(label), Text(value))
        self._indented(table)

    def _heading(self, text: str) -> None:
        self._space()
        self._line(text, "bold")

    def _indented(self, what: Text | Table, times: int = 1) -> None:
        self._console.print(Padding(what, (0, 0, 0, times * _INDENT)))

    def _line(self, text: str, style: str) -> None:
        self._console.print(Text(text, style))

    def _space(self) -> None:
        self._console.print()
