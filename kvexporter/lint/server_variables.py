"""The environment variables of a llama-server: names it does not know, and values it cannot read."""

from __future__ import annotations

from collections.abc import Mapping

from kvexporter.lint.findings import Findings
from kvexporter.lint.options import find_variable, near_variable
from kvexporter.lint.places import Traced
from kvexporter.lint.values import wrong_value
from kvexporter.lint.words import Value
from kvexporter.llama.launch_names import FALSE_WORDS, TRUE_WORDS

OTHER = frozenset(("LLAMA_API_KEY", "LLAMA_CACHE", "LLAMA_SERVER_SLOTS_DEBUG", "LLAMA_TRACE"))
"""Variables that llama-server reads beside those of its options."""


def check_variables(values: Mapping[str, Value], starts: Mapping[str, int], out: Findings, build: int | None) -> None:
    """Add what is wrong with `LLAMA_…` variables; `starts` are the marks of their assignments."""
    for name, value in values.items():
        if name not in starts or not name.startswith("LLAMA_ARG_"):
            continue
        known = find_variable(name)
        if known is None:
            _unknown(name, starts[name], out)
            continue
        former = known.former
        if known.option.removed:
            out.add(
                "removed-option", "error", starts[name], f"{name} belongs to an option that has been removed",
                f"llama-server ends at once and says: {known.option.removed}.",
            )  # fmt: skip
        elif former is not None and (former.last_build is None or build is None or build > former.last_build):
            out.add(
                "unknown-variable", "warning", starts[name], f"{name} is read by builds until {former.until} only",
                "Later builds pass over it without a word.",
            )  # fmt: skip
        if value is not None:
            _value(name, value, starts[name], out)


def _unknown(name: str, mark: int, out: Findings) -> None:
    guess = near_variable(name)
    out.add(
        "unknown-variable", "warning", mark,
        f"no build of llama-server reads {name}" + (f"; did you mean {guess}?" if guess else ""),
        "llama-server passes over it without a word.",
        out.book.replaced(mark, mark + len(name), guess) if guess else "",
    )  # fmt: skip


def _value(name: str, value: Traced, mark: int, out: Findings) -> None:
    known = find_variable(name)
    if known is None:
        return
    at = value.marks[0] if len(value.marks) else mark
    if not known.positive:
        if value.text in FALSE_WORDS:
            out.add(
                "set-is-enough", "warning", mark, f"{name}={value.text} turns the option off all the same",
                "llama-server looks only whether the variable is set, not at its value.",
            )  # fmt: skip
        return
    if known.option.values == 0:
        if value.text not in TRUE_WORDS and value.text not in FALSE_WORDS:
            out.add(
                "bad-value", "error", at, f"{name} takes 1 or 0, not “{value.text[:40]}”",
                f"llama-server ends at once with “error while handling environment variable "
                f'"{name}": invalid boolean value” or takes it for off.',
            )  # fmt: skip
        return
    wrong = wrong_value(known.option, value.text)
    if wrong is not None:
        code, what, happens, better = wrong
        end = value.marks[-1] + 1 if len(value.marks) else at
        out.add(code, "error", at, f"{name} {what}", happens, out.book.replaced(at, end, better) if better else "")
