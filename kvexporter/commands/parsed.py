"""The type of options that a function of the program reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

T = TypeVar("T")


class Parsed(click.ParamType[T]):
    """A parameter read by a function that raises ValueError with what was expected."""

    def __init__(self, name: str, read: Callable[[str], T]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return] # a default, already converted
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
