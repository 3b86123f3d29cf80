"""Compares how a server's pool was meant with how it is, and says so. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvexporter.pool_geometry import Geometry
from kvexporter.reports.findings import Finding
from kvexporter.reports.pool_words import pool_words

_CELLS = 256
"""What the server rounds a buffer's cells up to."""


@dataclass(frozen=True, slots=True)
class Expected:
    """How it was meant; None: anything will do."""

    window: int | None = None
    """Tokens that each slot is sure of."""
    slots: int | None = None
    pool: int | None = None
    """Cells of the whole buffer, all slots' together."""
    overcommit: bool = False
    """More may be promised than there is."""


def compare(name: str, expected: Expected, found: Geometry) -> tuple[list[Finding], list[str]]:
    """What is as it was meant and what is not; and what was expected and cannot be known, in words."""
    findings: list[Finding] = []
    unknown: list[str] = []
    for what, meant, real in (
        ("slots", expected.slots, found.slots),
        ("window of each slot", expected.window, found.slot_context),
        ("pool", expected.pool, found.capacity),
    ):
        if meant is None:
            continue
        if real is None:
            unknown.append(f"the {what}")
        elif real == meant or (what != "slots" and real == _padded(meant)):
            findings.append(Finding("ok", name, f"{what}: {real:,}, as expected"))
        else:
            findings.append(Finding("problem", name, f"{what}: {real:,}, expected {meant:,}", _remedy(what)))
    findings += _promises(name, expected, found)
    return findings, unknown


def _promises(name: str, expected: Expected, found: Geometry) -> Iterator[Finding]:
    words = pool_words(found)
    if words is None:
        return
    if words.overcommitted and not expected.overcommit:
        # A window that others can take away is none that was expected.
        level = "problem" if expected.window is not None else "warning"
        yield Finding("problem" if level == "problem" else "warning", name, words.text, words.remedy)
    elif found.overcommit_ratio is None and expected.window is not None and (found.slots or 2) > 1:
        yield Finding("warning", name, f"{words.text}: whether the window is sure is not known")
    else:
        yield Finding("ok", name, words.text)


def _remedy(what: str) -> str:
    if what == "slots":
        return "slots are -np N (--slots turns an endpoint on)"
    if what == "pool":
        return "the pool is -c N; without -c it is the training context, or slots x --kv-unified-per-slot"
    return "-c is divided by -np unless -kvu is given; --kv-unified-per-slot and the training context cap the window"


def _padded(tokens: int) -> int:
    return -(-tokens // _CELLS) * _CELLS
