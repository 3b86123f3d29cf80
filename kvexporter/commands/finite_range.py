"""The type of every option that takes a number which need not be whole."""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A number in a range, as `click.FloatRange` reads it, without `nan` and `inf`.

    `nan` is neither below nor above any bound, and so passes a range whatever it is; `inf` passes one that is open.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Give the number. Fails with click.BadParameter if it is none, not finite, or not in the range."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"expected a finite number, found {str(value)[:100]!r}", param, ctx)
        return number
