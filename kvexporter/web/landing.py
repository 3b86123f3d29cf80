"""The landing page: what is watched, and where to go. Plain HTML without scripts."""

from __future__ import annotations

import base64
import hashlib
from html import escape

import kvexporter
from kvexporter.snapshot import ExporterSnapshot, ServerSnapshot

_STYLE = (
    "body{font-family:sans-serif;margin:2em;max-width:70em}"
    "table{border-collapse:collapse}"
    "th,td{text-align:left;padding:.3em 1em .3em 0;border-bottom:1px solid #ccc}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}"
)
STYLE_HASH = f"'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
"""For the content security policy: only this style is used."""

_UNKNOWN = "unknown"
_COLUMNS = ("Server", "Unit", "Model", "State", "Pool", "Overcommit", "Fill", "Context errors")


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
    fill = server.pool.fill_ratio if server.pool is not None else None
    errors = sum(server.counters.incidents.values()) if server.has_log else None
    texts = (server.name, server.unit or "", server.model or _UNKNOWN, server.state or _UNKNOWN)
    numbers = (
        f"{geometry.capacity:,} tokens" if geometry.capacity is not None else _UNKNOWN,
        f"{geometry.overcommit_ratio:.2f}" if geometry.overcommit_ratio is not None else _UNKNOWN,
        f"{fill:.1%}" if fill is not None else _UNKNOWN,
        str(errors) if errors is not None else _UNKNOWN,
    )
    cells = [f"<td>{_shown(text)}</td>" for text in texts] + [f"<td class=n>{text}</td>" for text in numbers]
    return f"<tr>{''.join(cells)}</tr>"


def _shown(text: str) -> str:
    # Names from /proc can hold bytes that are not UTF-8, which Python keeps as lone surrogates.
    return escape(text.encode("utf-8", "replace").decode())
