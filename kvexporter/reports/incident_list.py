"""Kept incidents as a list, for people, as JSON and as Markdown. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from kvexporter.incident_fields import incident_fields
from kvexporter.incident_words import counted
from kvexporter.reports.diagnosis_markdown import escaped, markdown_table
from kvexporter.reports.diagnosis_text import incident_table
from kvexporter.reports.findings import printable
from kvexporter.reports.incident_table import COLUMNS, incident_remarks, incident_rows, incident_title, moment
from kvexporter.snapshot import Incident

Kept = dict[str, list[Incident]]
"""Server → its latest incidents, oldest first."""

_decoder = msgspec.json.Decoder(Incident)


def kept_incidents(details: Mapping[str, Sequence[bytes]], last: int, server: str | None = None) -> Kept:
    """The incidents of a store, of each server the `last` ones. Raises ValueError for one that cannot be read."""
    if server is not None and server not in details:
        known = ", ".join(sorted(details)) or "none"
        raise ValueError(f"no incident of a server {server!r} is kept (servers with incidents: {known})")
    names = sorted(details) if server is None else [server]
    try:
        return {name: [_decoder.decode(detail) for detail in details[name][-last:]] for name in names}
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"an incident in it cannot be read ({error}): was it written by another version?") from None


def list_json(kept: Kept) -> str:
    """A list of incidents, each with its server, ordered by server and time."""
    found = [{"server": name, **incident_fields(incident)} for name in kept for incident in kept[name]]
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def list_markdown(kept: Kept) -> str:
    """A heading for each server and each incident."""
    return "\n\n".join(_markdown(kept)) + "\n"


def print_list(kept: Kept, console: Console) -> None:
    """The list for people."""
    if not any(kept.values()):
        console.print(_NOTHING)
    for number, (name, incidents) in enumerate(kept.items()):
        if number:
            console.print()
        console.print(Text(f"{printable(name)}: {_how_many(incidents)}", "bold"))
        for incident in incidents:
            console.print()
            _indented(console, Text(incident_title(incident, moment(incident.started)), "yellow"))
            if incident.slots:
                _indented(console, incident_table(incident), 4)
            for remark in incident_remarks(incident):
                _indented(console, Text(remark))


_NOTHING = "No incident is kept: no request died for want of context while the exporter watched."


def _markdown(kept: Kept) -> Iterator[str]:
    if not any(kept.values()):
        yield _NOTHING
    for name, incidents in kept.items():
        yield f"## {escaped(printable(name))}: {_how_many(incidents)}"
        for incident in incidents:
            yield f"### {incident_title(incident, moment(incident.started))}"
            if incident.slots:
                yield markdown_table(COLUMNS, incident_rows(incident), numbers=True)
            if remarks := incident_remarks(incident):
                yield " ".join(remarks)


def _how_many(incidents: Sequence[Incident]) -> str:
    return f"the latest {counted(len(incidents), 'incident')}" if incidents else "no incident"


def _indented(console: Console, what: object, columns: int = 2) -> None:
    console.print(Padding(what, (0, 0, 0, columns)))  # type: ignore[arg-type]  # whatever rich can print
