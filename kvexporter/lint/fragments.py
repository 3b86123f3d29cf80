"""Variables that hold arguments of a llama-server, as EXTRA_ARGS does: found by what is in them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvexporter.lint.exec_line import split_words
from kvexporter.lint.findings import Findings
from kvexporter.lint.options import find, near
from kvexporter.lint.places import Traced
from kvexporter.lint.server_checks import check_server
from kvexporter.lint.server_command import ServerCommand
from kvexporter.lint.words import Argument, Value

_OPTION = re.compile(r"--?[A-Za-z][\w-]*(?:=.*)?", re.ASCII | re.S)


def split_by_bash(value: Traced) -> list[Argument]:
    """As bash splits an unquoted variable: at white space, quotes are characters like others."""
    return [
        Argument(match[0], True, value.marks[match.start() : match.end()], value.marks[match.start()],
                 value.marks[match.end() - 1] + 1, split=True)
        for match in re.finditer(r"[^ \t\n]+", value.text)
    ]  # fmt: skip


def split_by_systemd(value: Traced) -> list[Argument]:
    """As systemd splits a variable in ExecStart: at white space, quotes hold words together."""
    return split_words(value, escapes=False, relaxed=True)


def is_fragment(value: Value) -> bool:
    """Whether a value looks like arguments of a llama-server: options, at least half of which it knows or nearly so."""
    if value is None or not value.text.lstrip().startswith("-"):
        return False
    names = [word.partition("=")[0] for word in value.text.split() if _OPTION.fullmatch(word)]
    known = sum(find(name) is not None or near(name) is not None for name in names)
    return bool(names) and known * 2 >= len(names)


def check_fragments(
    variables: Mapping[str, Value], starts: Mapping[str, int], out: Findings, build: int | None
) -> None:
    """Judge the arguments in variables, together with the `LLAMA_ARG_…` variables beside them."""
    split = split_by_systemd if out.rules == "systemd" else split_by_bash
    given = {name: value for name, value in variables.items() if name in starts and name.startswith("LLAMA_")}
    fragments = [value for name, value in variables.items() if name in starts and is_fragment(value)]
    marks = {name: starts[name] for name in given}
    # Several of them may be parts of one command or of several: then each is judged for itself.
    for value in fragments or [None]:
        arguments = split(value) if value is not None else []
        if arguments or given:
            check_server(ServerCommand(arguments, given, marks, whole=False), out, build)
