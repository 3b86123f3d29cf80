"""What is wrong with an environment file that systemd reads for EnvironmentFile=."""

from __future__ import annotations

from kvexporter.lint.findings import Findings
from kvexporter.lint.fragments import check_fragments
from kvexporter.lint.places import Source
from kvexporter.lint.server_variables import check_variables
from kvexporter.lint.systemd_environment import Setting, SystemdEnvironment, read_systemd_environment
from kvexporter.lint.words import Value

_SHOWN = 40


def check_systemd_environment(source: Source, out: Findings, build: int | None, *, alone: bool) -> dict[str, Value]:
    """Add what is wrong with the file, `alone` with arguments in it too; give the variables that it sets."""
    read = read_systemd_environment(source.whole())
    if source.text.startswith("\ufeff"):
        out.add(
            "byte-order-mark", "error", source.base, "the file begins with a byte order mark",
            "systemd takes it for a part of the first name and ignores the line.",
            source.line(0)[1].removeprefix("\ufeff"),
        )  # fmt: skip
    _check_whole(read, out)
    seen: dict[str, int] = {}
    for setting in read.settings:
        if not setting.valid:
            _check_name(setting, out)
            continue
        if setting.name in seen:
            out.add(
                "set-twice", "warning", seen[setting.name], f"{setting.name} is set again further down",
                "The last one counts.",
            )  # fmt: skip
        seen[setting.name] = setting.start
        _check_value(setting, out)
    variables: dict[str, Value] = dict(read.variables())
    if read.unclosed is not None:
        variables[read.settings[-1].name] = None  # what was meant ends somewhere in it
    check_variables(variables, seen, out, build)
    if alone:
        check_fragments(variables, seen, out, build)
    return variables


def _check_whole(read: SystemdEnvironment, out: Findings) -> None:
    if read.refused is not None:
        mark, why = read.refused
        out.add(
            "refused", "error", mark, f"systemd refuses the whole file: {why}",
            "The unit does not start: “Failed to load environment files”.",
        )  # fmt: skip
    if read.unclosed is not None:
        out.add(
            "unclosed-quote", "error", read.unclosed, "nothing closes this quote",
            "systemd takes the rest of the file for the value.",
        )  # fmt: skip
    for mark in read.continued_comments:
        source = out.book.source(mark)
        following = source.text[mark - source.base + 2 :].partition("\n")[0].strip()
        if following and not following.startswith(("#", ";")):
            out.add(
                "comment-continues", "error", mark, "a backslash at the end of a comment",
                "systemd takes the next line for a part of the comment (version 252 and others): it does nothing.",
                out.book.line(mark).rstrip().rstrip("\\").rstrip(),
            )  # fmt: skip
    for mark, text in read.no_assignments:
        if not text.strip("\ufeff \t"):
            continue
        out.add(
            "not-an-assignment", "error", mark, f"“{text.strip()[:_SHOWN]}” is no assignment",
            "systemd ignores the line.",
        )  # fmt: skip


def _check_name(setting: Setting, out: Findings) -> None:
    first, _, rest = setting.name.partition(" ")
    if first in ("export", "declare", "readonly", "set", "setenv") and rest:
        out.add(
            "export-ignored", "error", setting.start, f"systemd knows no {first}",
            f"It ignores the line (“Ignoring invalid environment assignment”): {rest.strip()[:_SHOWN]} stays unset.",
            out.book.removed(setting.start, setting.start + len(first)).lstrip(),
        )  # fmt: skip
        return
    if setting.name.startswith("\ufeff"):
        return
    out.add(
        "invalid-name", "error", setting.start, f"“{setting.name[:_SHOWN]}” cannot be the name of a variable",
        "systemd ignores the line (“Ignoring invalid environment assignment”). Names are letters, digits and _.",
    )  # fmt: skip


def _check_value(setting: Setting, out: Findings) -> None:
    if setting.dollar is not None:
        out.add(
            "not-expanded", "warning", setting.dollar, f"$ in the value of {setting.name} is not expanded",
            "systemd has no variables, commands or arithmetic here: the value holds the text as it stands.",
        )  # fmt: skip
    if setting.hash_sign is not None:
        source = out.book.source(setting.hash_sign)
        start, line = source.line(setting.hash_sign - source.base)
        out.add(
            "comment-in-value", "warning", setting.hash_sign, f"# in the value of {setting.name} starts no comment",
            "systemd has comments only on lines of their own: this one becomes a part of the value.",
            line[: setting.hash_sign - source.base - start].rstrip(),
        )  # fmt: skip
    # In arguments they do what they seem to: $NAME in ExecStart= is split by quotes.
    if setting.quotes_inside is not None and not setting.value.text.startswith("-"):
        out.add(
            "quotes-inside-value", "warning", setting.quotes_inside,
            f"quotes inside the value of {setting.name} become a part of it",
            "systemd removes quotes only where they begin the value.",
        )  # fmt: skip
