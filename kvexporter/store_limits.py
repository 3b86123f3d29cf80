"""How much the store keeps, and how the rest is forgotten."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Literal

KEPT_REQUESTS = 10_000
"""Sizes kept by server, for exact percentiles."""
KEPT_INCIDENTS = 1_000
"""Incidents kept by server."""
KEPT_STARTS = 10
"""Starts kept by server."""
KEPT_SECONDS = 90 * 86_400
"""A journal not read for so long is forgotten, with its servers."""

_KEPT = {"incident": KEPT_INCIDENTS, "request": KEPT_REQUESTS}


def trim(
    database: sqlite3.Connection,
    table: Literal["incident", "request"],
    rows: Iterable[tuple[str, int, object, object]],
) -> None:
    """Of the servers in these rows, that were just written oldest first, keep the latest ones. Raises sqlite3.Error."""
    newest: Mapping[str, int] = {server: number for server, number, _, _ in rows}
    for server, number in newest.items():
        # Above it: numbers of an earlier count that was begun anew.
        database.execute(
            f"DELETE FROM {table} WHERE server = ? AND (number <= ? OR number > ?)",  # noqa: S608
            (server, number - _KEPT[table], number),
        )


def trim_starts(database: sqlite3.Connection, server: str) -> None:
    """Of a server's starts keep the latest ones. Raises sqlite3.Error."""
    database.execute(
        "DELETE FROM start WHERE server = ? AND began NOT IN "
        "(SELECT began FROM start WHERE server = ? ORDER BY began DESC LIMIT ?)",
        (server, server, KEPT_STARTS),
    )


def forget_old(database: sqlite3.Connection, now: float) -> None:
    """Forget what nobody has written for long. Raises sqlite3.Error."""
    database.execute("DELETE FROM feed WHERE updated < ?", (now - KEPT_SECONDS,))
    for table in ("incident", "request", "start"):
        database.execute(
            f"DELETE FROM {table} WHERE server IN (SELECT server FROM {table} GROUP BY server "  # noqa: S608
            "HAVING max(ended) < ?)",
            (now - KEPT_SECONDS,),
        )
