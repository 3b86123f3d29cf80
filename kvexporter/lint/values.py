"""The values of launch options and variables: numbers as the server reads them, and words of fixed lists."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvexporter.lint.findings import Findings
from kvexporter.lint.option import Option
from kvexporter.lint.words import Argument
from kvexporter.llama.launch_names import FALSE_WORDS, TRUE_WORDS

# Options that the server reads with C++'s stoi, by their first spelling.
_WHOLE = frozenset(
    ("-c", "-np", "--kv-unified-per-slot", "-n", "-b", "-ub", "-t", "-tb", "--keep", "-mg", "-ncmoe", "-ncffn", "-fitc",
     "-ctxcp", "-cms", "-cram", "-lv", "-to", "--threads-http", "--cache-reuse", "--port", "--sleep-idle-seconds",
     "--models-max")
)  # fmt: skip
_LOWEST = {"--kv-unified-per-slot": 1, "-b": 1, "-ub": 1, "-c": 0, "--port": 0, "-cram": -1}
_NOT_ZERO = frozenset(("-np", "--sleep-idle-seconds"))
_NUMBER = re.compile(r"\s*([+-]?[0-9]+)(.*)", re.ASCII | re.S)
_SUFFIXES = {"k": 1024, "m": 1024 * 1024}
_SWITCH = frozenset((*TRUE_WORDS, *FALSE_WORDS, "-1", "auto"))


def check_value(option: Option, name: Argument, values: Sequence[Argument], out: Findings) -> bool:
    """Add what is wrong with the values of one option; give whether nothing is."""
    if len(values) != 1 or not values[0].known:
        return True
    value = values[0]
    wrong = wrong_value(option, value.text)
    if wrong is None:
        return True
    code, what, happens, better = wrong
    out.add(
        code, "error", value.start, f"{name.text} {what}", happens,
        out.book.replaced(value.start, value.end, better) if better else "",
    )  # fmt: skip
    return False


def wrong_value(option: Option, value: str) -> tuple[str, str, str, str] | None:
    """What is wrong with a value: code, text (to follow the option's name), consequence, a better value; else None."""
    first = option.names[0]
    if option.choices and "on" in option.choices:
        if value in _SWITCH:
            return None
    elif option.choices:
        if value in option.choices:
            return None
    elif first in _WHOLE:
        return _wrong_number(first, value)
    else:
        return None
    listed = ", ".join(option.choices)
    better = next((choice for choice in option.choices if choice == value.lower()), "")
    return (
        "bad-value", f"takes one of {listed}, not “{value[:40]}”", "llama-server ends at once with an error.", better,
    )  # fmt: skip


def _wrong_number(first: str, value: str) -> tuple[str, str, str, str] | None:
    match = _NUMBER.match(value)
    if match is None:
        return "bad-value", f"takes a whole number, not “{value[:40]}”", "llama-server ends at once with an error.", ""
    if len(match[1]) > 12 or not -(2**31) <= int(match[1]) < 2**31:
        return "bad-value", "has a value beyond 2,147,483,647", "llama-server ends at once with an error.", ""
    number = int(match[1])
    rest = match[2].strip()
    if rest:
        return _with_rest(value, number, rest)
    if (first in _NOT_ZERO and number == 0) or number < _LOWEST.get(first, number):
        return "bad-value", f"cannot be {number}", "llama-server ends with an error or crashes.", ""
    return None


def _with_rest(value: str, number: int, rest: str) -> tuple[str, str, str, str]:
    better = ""
    factor = _SUFFIXES.get(rest.lower())
    separated = re.fullmatch(r"\s*([0-9]{1,3}(?:[_,.'][0-9]{3})+)", value)
    if factor is not None:
        better = str(number * factor)
    elif separated is not None:
        better = re.sub(r"\D", "", separated[1])
    elif rest in (",", ";"):
        better = str(number)
    happens = f"llama-server reads the digits at its beginning, {number}, and passes over the rest without a word."
    return "number-with-rest", f"takes a whole number, not “{value[:40]}”", happens, better
