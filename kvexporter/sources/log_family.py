"""A log file and what rotation has made of its predecessors: which files, and in which order they were written."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import Literal

Scheme = Literal["number", "date", "other"]
_How = tuple[Scheme, tuple[int, str]]
"""How a name tells its age, and the age; see `rotated`."""

_NUMBER = re.compile(r"\d{1,4}")
_DATE = re.compile(r"\d{4}-?\d{2}-?\d{2}[\dT:_.+-]*|\d{10}")
_OLD = ("old", "bak", "prev")
_UNFINISHED = (".tmp", ".swp", "~", ".part")
_ATTEMPTS = 5
MOST_MEMBERS = 1000
"""Rotated files of one kind of names that are looked at, the newest ones."""


@dataclass(frozen=True, slots=True)
class Member:
    """One file of a family."""

    path: str
    identity: tuple[int, int]
    """Device and inode."""
    size: int
    """In bytes, as stored."""
    modified: int
    """When it was last written to (nanoseconds since 1970)."""
    scheme: Scheme | None = None
    """How its name tells its age; None: it is the live file, the newest."""
    age: tuple[int, str] = (0, "")
    """Rises from the oldest to the newest of a scheme."""


def rotated(base: str, name: str) -> _How | None:
    """How a file's name tells that it was `base`, and how old it is; None if it does not.

    `a.log` becomes `a.log.1`, `a.log-20261130`, `a.1.log`, `a-20261130.log` or `a.log.old`, each maybe with `.gz`.
    Files of names only like that (`a.log.yesterday`) are "other": what they are shows in their content.
    """
    if name == base or name.endswith(_UNFINISHED):
        return None
    plain = name.removesuffix(".gz")
    stem, dot, extension = base.rpartition(".")
    infix = None
    if plain.startswith((base + ".", base + "-", base + "_")):
        infix = plain[len(base) + 1 :]
    elif stem and plain.startswith((stem + ".", stem + "-", stem + "_")) and plain.endswith(dot + extension):
        infix = plain[len(stem) + 1 : -len(extension) - 1]
        # Another server's log may be called a-2.log or a-b.log.
        if not _DATE.fullmatch(infix) and not (plain[len(stem)] == "." and _NUMBER.fullmatch(infix)):
            return None
    if infix is None:
        return None
    if _NUMBER.fullmatch(infix):
        return "number", (-int(infix), "")
    if _DATE.fullmatch(infix):
        return "date", (0, infix)
    return "other", (-1 if infix in _OLD else 0, infix)


def family(path: str) -> list[Member]:
    """The files of a family, oldest first; the live file, if there is one, is the last. "Other" ones come first of all.

    OSError when the folder cannot be listed, or changes all the time.
    """
    for _ in range(_ATTEMPTS):
        found = _list(path)
        # While files are renamed one may be seen twice or not at all.
        if [(member.path, member.identity) for member in found] == [(m.path, m.identity) for m in _list(path)]:
            return _in_order(found)
    raise OSError(f"the files of {path} are being renamed all the time")


def live_member(path: str) -> Member | None:
    """The live file; None if there is none now. OSError when it cannot be looked at or is no regular file."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is not a regular file")
    return _member(path, status)


def _member(path: str, status: os.stat_result, scheme: Scheme | None = None, age: tuple[int, str] = (0, "")) -> Member:
    return Member(path, (status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns, scheme, age)


def _list(path: str) -> list[Member]:
    found: list[Member] = []
    folder, base = Path(path).parent, Path(path).name
    try:
        with os.scandir(folder) as entries:
            named = sorted((entry.name, how) for entry in entries if (how := rotated(base, entry.name)) is not None)
    except FileNotFoundError:
        return []
    except PermissionError:
        named = []  # the live file may be readable all the same
    names = {name for name, _ in named}
    for name, (scheme, age) in _newest(named):
        if name.endswith(".gz") and name.removesuffix(".gz") in names:
            continue  # still being packed
        try:
            status = (folder / name).stat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            found.append(_member(str(folder / name), status, scheme, age))
    live = live_member(path)
    return [*found, live] if live is not None else found


def _newest(named: list[tuple[str, _How]]) -> list[tuple[str, _How]]:
    """By their names: to look at each of many thousand takes seconds."""
    if len(named) <= MOST_MEMBERS:
        return named
    found: list[tuple[str, _How]] = []
    for scheme in ("number", "date", "other"):
        found += nlargest(MOST_MEMBERS, (one for one in named if one[1][0] == scheme), key=lambda one: one[1][1])
    return sorted(found)


def _in_order(members: list[Member]) -> list[Member]:
    """By what the names tell where all of them tell it in the same way, else by when they were last written to."""
    others = sorted((m for m in members if m.scheme == "other"), key=lambda m: m.modified)
    past = [m for m in members if m.scheme in ("number", "date")]
    if len({m.scheme for m in past}) > 1:
        past.sort(key=lambda m: (m.modified, m.age))
    else:
        past.sort(key=lambda m: m.age)
    return [*others, *past, *(m for m in members if m.scheme is None)]
