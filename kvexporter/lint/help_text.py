"""Reads what `llama-server --help` prints, and words it as lint's table of options."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvexporter.lint.option import Option

_NAME = r"--?[A-Za-z0-9][\w.-]*"
_HEAD = re.compile(rf"(?P<names>{_NAME}(?:,\s+{_NAME})*)(?: (?P<value>\S.*?))?(?:\s{{2,}}.*)?", re.ASCII)
_VARIABLE = re.compile(r"\(env: (\w+)\)")
_ALLOWED = re.compile(r"allowed values: ((?:\w+, )*\w+)")
_CHOICES = re.compile(r"[\[{<](\w+(?:[|,]\w+)+)[\]}>]")
_REMOVED = re.compile(r"the argument has been removed\. (.*?) *(?:\(env|$)")


def read_help(text: str) -> tuple[Option, ...]:
    """The options that a `--help` lists, in its order. Lines that are none are passed over."""
    return tuple(_option(head, " ".join(rest)) for head, rest in _blocks(text))


def _blocks(text: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    head: re.Match[str] | None = None
    rest: list[str] = []
    for line in text.splitlines():
        # An option starts at the left edge; what is said of it is indented.
        match = _HEAD.fullmatch(line.rstrip()) if line.startswith("-") and not line.startswith("-----") else None
        if match is not None:
            if head is not None:
                yield head, rest
            head, rest = match, [line[match.end("value") if match["value"] else match.end("names") :].strip()]
        elif line.startswith("-----"):  # the title of a group
            if head is not None:
                yield head, rest
            head = None
        elif head is not None:
            rest.append(line.strip())
    if head is not None:
        yield head, rest


def _option(head: re.Match[str], said: str) -> Option:
    names = re.split(r",\s+", head["names"])
    value = head["value"] or ""
    # Flags come with their opposites: the first spelling that says no begins these.
    off = next((at for at, name in enumerate(names) if at and re.match(r"--?n", name)), len(names))
    if value:
        off = len(names)
    variable, removed = _VARIABLE.search(said), _REMOVED.search(said)
    listed = _CHOICES.fullmatch(value)
    allowed = _ALLOWED.search(said)
    choices = re.split(r"[|,]", listed[1]) if listed else allowed[1].split(", ") if allowed else []
    return Option(
        tuple(names[:off]),
        tuple(names[off:]),
        0 if not value else 2 if re.fullmatch(r"[A-Z]+ [A-Z]+", value) else 1,
        variable[1] if variable else "",
        tuple(choices),
        removed[1] if removed else "",
    )


def table_source(options: tuple[Option, ...], build: str) -> str:
    """The text of options_table.py."""
    lines = [
        f'"""llama-server\'s launch options, as the `--help` of {build} lists them.',
        "",
        "Made by `python -m kvexporter.lint.make_table`: do not change it by hand. Other builds: options_history.py.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from kvexporter.lint.option import Option",
        "",
        f'BUILD = "{build}"',
        "",
        "# fmt: off",
        "OPTIONS: tuple[Option, ...] = (",
    ]
    for option in options:
        parts = [_tuple(option.names)]
        for name, given in (
            ("off_names", _tuple(option.off_names) if option.off_names else ""),
            ("values", str(option.values) if option.values else ""),
            ("variable", f'"{option.variable}"' if option.variable else ""),
            ("choices", _tuple(option.choices) if option.choices else ""),
            ("removed", f'"{option.removed}"' if option.removed else ""),
        ):
            if given:
                parts.append(f"{name}={given}")
        line = f"    Option({', '.join(parts)}),"
        if len(line) > 120:
            line = "    Option(\n" + "".join(f"        {part},\n" for part in parts) + "    ),"
        lines.append(line)
    return "\n".join([*lines, ")", "# fmt: on", ""])


def _tuple(words: tuple[str, ...]) -> str:
    return "(" + "".join(f'"{word}", ' for word in words).rstrip(" " if len(words) == 1 else ", ") + ")"
