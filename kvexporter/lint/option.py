"""One launch option of llama-server, as a build's `--help` describes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """An option with all its spellings."""

    names: tuple[str, ...]
    """Spellings that give it, or turn it on."""
    off_names: tuple[str, ...] = ()
    """Spellings that turn it off."""
    values: int = 0
    """How many values follow it."""
    variable: str = ""
    """The environment variable that gives it, empty for none."""
    choices: tuple[str, ...] = ()
    """The words that it takes; empty: not a fixed list."""
    removed: str = ""
    """What the server says if it is given although it was removed."""
