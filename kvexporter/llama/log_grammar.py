"""What the tables of log lines are made of: a rule, and the shapes of the numbers in it.

A rule is a pattern for the message of a line (what stands after prefixes and tag) and a function that makes the event.
All rules are joined into one pattern (see `log.py`), so a rule's groups are found by their distance from the rule's
own group, and a pattern must use neither group numbers nor names. Nearly all lines say nothing, so what counts is how
fast a line is found to match no rule: a pattern starts with a plain letter, which the engine compares before it tries
the rule. A wording that may start in two ways is two rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from kvexporter.llama.events import Event
from kvexporter.llama.json_fields import MOST

Match = re.Match[bytes]

Build = Callable[[Match, int], Event | None]
"""Makes the event of a matched line. The rule's first own group is the given number plus one. None: it says nothing."""

PORT_GROUP, SLOT_GROUP, TASK_GROUP = 1, 2, 3
"""Groups of the joined pattern that come before all rules."""

_SHAPES = {
    # Tokens and tasks: below 2**40, as everywhere; a line with a larger number is damaged or forged, and says nothing.
    b"<count>": rb"(\d{1,12})",
    # A number of slots; llama.cpp itself has at most 256.
    b"<slots>": rb"(\d{1,4})",
    b"<some-slots>": rb"([1-9]\d{0,3})",
    # A number that may be negative, and one that is of no use here.
    b"<number>": rb"(-?\d{1,12})",
    b"<->": rb"-?\d{1,15}",
    # What C prints for a double, `nan` and `inf` included (Windows prints `-nan(ind)`).
    b"<double>": rb"(-?(?:\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,3})?|nan(?:\(ind\))?|inf))",
    b"<-.->": rb"-?(?:\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,3})?|nan(?:\(ind\))?|inf)",
    b"<MiB>": rb"(\d{1,9}(?:\.\d{1,9})?) MiB",
    # A cache type such as `q8_0`.
    b"<type>": rb"(\w{1,16})",
    b"<name>": rb"[A-Za-z_]\w{0,63}+(?:\(\))?+",
    b"<end>": rb"\s*\Z",
    # The end, or further `, name = value` fields: newer builds append them.
    b"<fields>": rb"(?=\s*\Z|,)",
}
_SHAPE = re.compile(rb"<[\w.-]+>")


class Rule(NamedTuple):
    """One kind of line."""

    pattern: bytes
    build: Build


def rule(shape: bytes, build: Build) -> Rule:
    """A rule from its shape: a regular expression with names of `_SHAPES` in it."""
    return Rule(_SHAPE.sub(lambda m: _SHAPES[m[0]], shape), build)


def task_number(printed: bytes | None) -> int | None:
    """The task of a line; llama-server prints -1 where there is none, and shortened logs nothing."""
    return None if printed is None or printed.startswith(b"-") else int(printed)


def finite(printed: bytes | None) -> float | None:
    """A printed double that is not negative; None where it is missing, nan, infinite or beyond belief (2**40)."""
    if printed is None or printed.endswith(b")"):  # -nan(ind)
        return None
    value = float(printed)
    return value if 0 <= value <= MOST else None


def mebibytes(printed: bytes) -> int:
    """Bytes of a size in MiB (printed with two decimals, so the result is exact only to 5 KiB)."""
    return round(float(printed) * 1024 * 1024)


def text(raw: bytes, limit: int = 200) -> str:
    """Text out of a log line, which need not be UTF-8, cut to `limit` characters."""
    return raw[: 4 * limit].decode("utf-8", errors="replace")[:limit]
