"""An argument of a program, as bash or systemd would pass it, with where it was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kvexporter.lint.places import Traced

Value: TypeAlias = Traced | None
"""A variable's value; None where only running the text could tell it."""

UNKNOWN = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Stands in an argument's text for what is not known."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument."""

    text: str
    known: bool
    """Nothing of it is unknown."""
    marks: Sequence[int]
    """Where each of its characters was written."""
    start: int
    """Where it is written, with its quotes."""
    end: int
    several: bool = False
    """It is unknown and may be any number of arguments."""
    split: bool = False
    """It comes from a variable that bash splits at white space without looking at quotes."""
