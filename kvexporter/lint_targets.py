"""What `lint` was told to judge: a file, a unit or a command line, and who reads an environment file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from kvexporter.lint.context import EnvironmentRules, FileText
from kvexporter.lint.linter import Linter, reads_by_bash
from kvexporter.lint.places import Book
from kvexporter.lint.unit_text import read_unit
from kvexporter.sources.unit_files import (
    UnreadableError,
    drop_ins_beside,
    find_unit,
    read_file,
    units_that_mention,
)

As = Literal["bash", "systemd", "script", "unit"]
_SHEBANG = re.compile(r"#!\s*\S*/(?:env\s+(?:-\S+\s+)*)?(?:ba|da|z|k|a)?sh\b")
_UNIT = re.compile(r"[\w:.\\@-]+\.service", re.ASCII)
_SECTION = re.compile(r"^\[(?:Unit|Service|Install)\]\s*$", re.M)
_ONLY_BASH = re.compile(r"^\s*(?:export\s|source\s|\.\s|set\s+[-+]|declare\s|if\s|\[)|=\S*\$\(", re.M)


def judge(linter: Linter, target: str, rules: As | None) -> None:
    """Judge a file or a unit. UnreadableError if it cannot be read."""
    path = Path(target)
    if rules is None and _is_unit_name(target, path):
        _unit(linter, target if target.endswith(".service") else f"{target}.service")
        return
    text = read_file(path)
    kind, why = (rules, "--as says so") if rules is not None else _kind(path, text)
    if kind == "unit":
        parts = [(target, text), *((str(found), read_file(found)) for found in drop_ins_beside(path))]
        linter.unit(parts, why)
    elif kind == "script":
        linter.script(target, text, why)
    elif kind is not None:
        linter.environment_file(target, text, (kind,), why)
    else:
        users, why = _users(path.absolute(), text)
        linter.environment_file(target, text, users, why)


def _is_unit_name(target: str, path: Path) -> bool:
    if "/" in target or path.exists():
        return False
    return _UNIT.fullmatch(target) is not None or _UNIT.fullmatch(f"{target}.service") is not None


def _unit(linter: Linter, name: str) -> None:
    files = find_unit(name)
    linter.unit([(str(path), read_file(path)) for path in files.paths], f"it belongs to {name}")


def _kind(path: Path, text: str) -> tuple[As | None, str]:
    if path.suffix == ".service":
        return "unit", "its name ends in .service"
    if path.suffix == ".conf" and path.parent.name.endswith(".service.d"):
        return "unit", "it is a drop-in"
    if _SECTION.search(text):
        return "unit", "it has sections as a unit has"
    if path.suffix in (".sh", ".bash"):
        return "script", f"its name ends in {path.suffix}"
    if _SHEBANG.match(text):
        return "script", "it begins with #!"
    return None, ""


def _users(path: Path, text: str) -> tuple[tuple[EnvironmentRules, ...], str]:
    """Who reads an environment file, from the units that name it and the scripts that these run."""
    found: dict[EnvironmentRules, str] = {}
    reads = re.compile(rf"(?:\.|source)\s+[\"']?{re.escape(str(path))}(?![\w.-])")
    for unit, content in units_that_mention(str(path)):
        for entry in read_unit(Book().add("", content)):
            if entry.key == "EnvironmentFile" and entry.value.text.removeprefix("-") == str(path):
                found.setdefault("systemd", f"{unit} names it with EnvironmentFile=")
            elif entry.key.startswith("Exec") and reads.search(entry.value.text):
                found.setdefault("bash", f"{unit} reads it with . in {entry.key}=")
    for unit, content in units_that_mention("llama"):
        for entry in read_unit(Book().add("", content)):
            script = entry.value.text.lstrip("-@:+!").partition(" ")[0] if entry.key == "ExecStart" else ""
            if script.startswith("/") and _script_reads(script, path):
                found.setdefault("bash", f"{script}, which {unit} runs, reads it with .")
    if found:
        return tuple(found), "; ".join(found.values())
    if _ONLY_BASH.search(text):
        return ("bash",), "it holds what only a shell understands, and no unit names it"
    return (
        "bash",
        "systemd",
    ), "no unit names it (--as bash or --as systemd says who reads it)"


def _script_reads(script: str, path: Path) -> bool:
    try:
        text = read_file(Path(script))
    except UnreadableError:
        return False
    return _SHEBANG.match(text) is not None and reads_by_bash(text, str(path))


def read_named(path: str) -> FileText:
    """A file that a unit or a script names."""
    try:
        return FileText(read_file(Path(path)))
    except UnreadableError as error:
        missing = isinstance(error.__cause__, FileNotFoundError | NotADirectoryError)
        return FileText(None, str(error).removeprefix(f"{path}: "), missing)
    except ValueError:  # a NUL in the path
        return FileText(None, "this is no path")
