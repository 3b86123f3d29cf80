"""The landing page: what is watched, and where to go. Plain HTML without scripts."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from html import escape

import kvexporter
from kvexporter.incident_words import counted
from kvexporter.snapshot import Cause, ExporterSnapshot, ServerSnapshot

_STYLE = (
    "body{font-family:sans-serif;margin:2em;max-width:70em}"
    "table{border-collapse:collapse}"
    "th,td{text-align:left;padding:.3em 1em .3em 0;border-bottom:1px solid #ccc}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}"
)
STYLE_HASH = f"'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
"""For the content security policy: only this style is used."""

_UNKNOWN = "unknown"
_COLUMNS = (
    *("Server", "Unit", "Model", "State"),
    *("Pool", "Overcommit", "Fill", "Peak of the last minute"),
    *("Died of a full pool", "Died of their own slot's limit", "The pool last ran out"),
)


def landing_page(snapshot: ExporterSnapshot, telemetry_path: str) -> str:
    """Give the whole page."""
    rows = "\n".join(_row(server) for server in snapshot.servers)
    head = "".join(f"<th scope=col>{column}</th>" for column in _COLUMNS)
    table = f"<table>\n<tr>{head}</tr>\n{rows}\n</table>" if snapshot.servers else f"<p>{_NO_SERVERS}</p>"
    return (
        f"<!DOCTYPE html>\n<html lang=en>\n<head><meta charset=utf-8><title>kvexporter</title>"
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>kvexporter</h1>\n"
        f"<p>Version {escape(kvexporter.__version__)}. Watches the KV pool of llama-server.</p>\n{table}\n"
        f'<ul>\n<li><a href="{escape(telemetry_path)}">Metrics</a></li>\n'
        f'<li><a href="/-/healthy">Health</a></li>\n<li><a href="/-/ready">Readiness</a></li>\n</ul>\n'
        f"</body>\n</html>\n"
    )


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
    text = datetime.fromtimestamp(incident.ended, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    biggest = next((slot for slot in incident.slots if slot.slot == incident.biggest_slot), None)
    if biggest is None or biggest.tokens is None:
        return text
    share = "" if biggest.share is None else f" ({biggest.share:.1%})"
    return f"{text}: slot {biggest.slot} held most, {biggest.tokens:,} tokens{share}"


def _shown(text: str) -> str:
    # Names from /proc can hold bytes that are not UTF-8, which Python keeps as lone surrogates.
    return escape(text.encode("utf-8", "replace").decode())
