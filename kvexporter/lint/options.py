"""Looks up launch options and variables of llama-server, of all builds, and near misses."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import lru_cache

from kvexporter.lint.option import Option
from kvexporter.lint.options_history import FORMER, FORMER_VARIABLES, NEWER, Former
from kvexporter.lint.options_table import OPTIONS
from kvexporter.llama.launch_names import MODEL_SHORTCUT


@dataclass(frozen=True, slots=True)
class Known:
    """A spelling that some build knows."""

    option: Option
    positive: bool = True
    """Whether it turns the option on."""
    former: Former | None = None
    """Set for options that builds of today do not know."""


def _spellings() -> dict[str, Known]:
    known = {name: Known(entry.option, former=entry) for entry in FORMER for name in entry.option.names}
    for option in (*NEWER, *OPTIONS):
        known.update((name, Known(option)) for name in option.names)
        known.update((name, Known(option, positive=False)) for name in option.off_names)
    return known


_KNOWN = _spellings()
_TODAY = [name for option in OPTIONS if not option.removed for name in (*option.names, *option.off_names)]
# What other programs call it, or people guess; difflib does not get from one to the other.
_MEANT = {
    "-ctx": "-c",
    "--ctx": "-c",
    "--n-ctx": "-c",
    "--context": "-c",
    "--context-size": "-c",
    "--context-length": "-c",
    "--max-model-len": "-c",
    "--n-parallel": "-np",
    "--np": "-np",
    "--num-parallel": "-np",
    "--n-slots": "-np",
    "--num-slots": "-np",
    "--slot-count": "-np",
    "--kvu": "-kvu",
    "--unified-kv": "-kvu",
    "--kv-cache-type": "-ctk",
    "--cache-type": "-ctk",
    "--kv-cache-dtype": "-ctk",
    "--fa": "-fa",
    "--flash-attention": "-fa",
    "--ngl": "-ngl",
    "--max-tokens": "-n",
    "--api-token": "--api-key",
    "--verbosity-level": "-lv",
}


def normal(name: str) -> str:
    """A spelling as the server reads it: it takes underscores for hyphens in long options."""
    return name.replace("_", "-") if name.startswith("--") else name


def find(name: str) -> Known | None:
    """What a spelling means; None if no build is known that has it."""
    name = normal(name)
    known = _KNOWN.get(name)
    if known is None and MODEL_SHORTCUT.fullmatch(name):
        return Known(Option((name,)))
    return known


@lru_cache(1000)
def near(name: str) -> str | None:
    """The option that was probably meant."""
    name = normal(name)
    for wrong in (name, name.lower()):
        if wrong in _MEANT:
            return _MEANT[wrong]
        if find(wrong) is not None:
            return wrong
    if not name.startswith("--") and find(f"-{name}") is not None:
        return f"-{name}"
    if len(name) > 60 or len(name) < 4:
        return None
    return next(iter(difflib.get_close_matches(name, _TODAY, 1, 0.75)), None)


def _variables() -> dict[str, Known]:
    known = {entry.option.variable: Known(entry.option, former=entry) for entry in FORMER if entry.option.variable}
    for option in (*NEWER, *OPTIONS):
        if option.variable:
            known[option.variable] = Known(option)
            if option.off_names:
                known[option.variable.replace("LLAMA_ARG_", "LLAMA_ARG_NO_", 1)] = Known(option, positive=False)
    # Older builds' negative forms stood alone.
    known.setdefault("LLAMA_ARG_NO_CONTEXT_SHIFT", Known(_KNOWN["--no-context-shift"].option, positive=False))
    for older, today in FORMER_VARIABLES.items():
        known.setdefault(older, known[today])
    return known


_VARIABLES = _variables()


def find_variable(name: str) -> Known | None:
    """What an environment variable means to llama-server; None if no build is known that reads it."""
    return _VARIABLES.get(name)


@lru_cache(1000)
def near_variable(name: str) -> str | None:
    """The variable that was probably meant."""
    if len(name) > 60:
        return None
    guesses = (f"LLAMA_ARG_{name.removeprefix('LLAMA_')}", f"LLAMA_ARG_ENDPOINT_{name.removeprefix('LLAMA_ARG_')}")
    for guess in guesses:
        if guess in _VARIABLES:
            return guess
    meant = find(f"--{name.removeprefix('LLAMA_ARG_').lower()}")
    if meant is not None and meant.option.variable:
        return meant.option.variable
    return next(iter(difflib.get_close_matches(name, sorted(_VARIABLES), 1, 0.8)), None)
