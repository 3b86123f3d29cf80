"""What is watched, as one plain table: what the page shows to who runs no scripts."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape

from kvexporter.incident_words import counted
from kvexporter.snapshot import Cause, ExporterSnapshot, ServerSnapshot

_UNKNOWN = "unknown"
_COLUMNS = (
    *("Server", "Unit", "Model", "State"),
    *("Pool", "Overcommit", "Fill", "Peak of the last minute"),
    *("Died of a full pool", "Died of their own slot's limit", "The pool last ran out"),
)


def servers_table(snapshot: ExporterSnapshot) -> str:
    """Give the table as HTML, with the time it is of."""
    if not snapshot.servers:
        return f"<p>{_NO_SERVERS}</p>"
    rows = "\n".join(_row(server) for server in snapshot.servers)
    head = "".join(f"<th scope=col>{column}</th>" for column in _COLUMNS)
    caption = f"<caption>As of {_time(snapshot.at)}; reload for newer numbers.</caption>"
    return f"<table>{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody>\n</table>"


_NO_SERVERS = "No llama-server has been found. <code>kvexporter check</code> on this host says what was looked for."


def _row(server: ServerSnapshot) -> str:
    geometry = server.geometry
    pool = server.pool
    texts = (server.name, server.unit or "", server.model or _UNKNOWN, server.state or _UNKNOWN)
    numbers = (
        f"{geometry.capacity:,} tokens" if geometry.capacity is not None else _UNKNOWN,
        f"{geometry.overcommit_ratio:.2f}" if geometry.overcommit_ratio is not None else _UNKNOWN,
        _ratio(pool.fill_ratio if pool is not None else None),
        _ratio(pool.fill_peak_ratio if pool is not None else None),
        _died(server, "pool"),
        _died(server, "slot"),
    )
    cells = [f"<td>{_shown(text)}</td>" for text in texts] + [f"<td class=n>{text}</td>" for text in numbers]
    return f"<tr>{''.join(cells)}<td>{_last_incident(server)}</td></tr>"


def _ratio(ratio: float | None) -> str:
    return _UNKNOWN if ratio is None else f"{ratio:.1%}"


def _died(server: ServerSnapshot, cause: Cause) -> str:
    """Requests, and in how many incidents; unknown without a log."""
    if not server.has_log:
        return _UNKNOWN
    requests = counted(server.counters.requests_failed.get(cause, 0), "request")
    incidents = server.counters.incidents.get(cause, 0)
    return f"{requests} in {counted(incidents, 'incident')}" if incidents else requests


def _last_incident(server: ServerSnapshot) -> str:
    """When the pool last ran out and who held most of it."""
    if not server.has_log:
        return _UNKNOWN
    incident = server.last_incident
    if incident is None:
        return "not yet"
    text = _time(incident.ended)
    biggest = next((slot for slot in incident.slots if slot.slot == incident.biggest_slot), None)
    if biggest is None or biggest.tokens is None:
        return text
    share = "" if biggest.share is None else f" ({biggest.share:.1%})"
    return f"{text}: slot {biggest.slot} held most, {biggest.tokens:,} tokens{share}"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _shown(text: str) -> str:
    # Names from /proc can hold bytes that are not UTF-8, which Python keeps as lone surrogates.
    return escape(text.encode("utf-8", "replace").decode())
