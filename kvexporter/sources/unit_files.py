"""systemd's unit files and what they name, read from their folders without asking systemd. Read only, and bounded."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LARGEST = 256 * 1024
"""Bytes of a file that is read: environment files, units and scripts are far smaller."""

UNIT_FOLDERS = tuple(
    Path(path)
    for path in (
        "/etc/systemd/system.control",
        "/run/systemd/system.control",
        "/run/systemd/transient",
        "/run/systemd/generator.early",
        "/etc/systemd/system",
        "/run/systemd/system",
        "/run/systemd/generator",
        "/usr/local/lib/systemd/system",
        "/usr/lib/systemd/system",
        "/lib/systemd/system",
        "/run/systemd/generator.late",
    )
)
"""Where units of the system are, the first one first in weight."""

_MOST_FILES = 5000


class UnreadableError(Exception):
    """A file or unit cannot be read; the text says which and why."""


@dataclass(frozen=True, slots=True)
class UnitFiles:
    """A unit's file and drop-ins, in the order in which systemd reads them."""

    name: str
    paths: tuple[Path, ...]


def read_file(path: Path) -> str:
    """The text of a file; bytes that are not UTF-8 are kept as surrogates. UnreadableError says what is wrong."""
    try:
        # A FIFO or a device would never end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnreadableError(f"{path}: this is no file")
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error
    if len(content) > LARGEST:
        raise UnreadableError(f"{path}: larger than {LARGEST // 1024} KiB, so no unit, script or environment file")
    return content.decode("utf-8", "surrogateescape")


def find_unit(name: str, folders: Sequence[Path] = UNIT_FOLDERS) -> UnitFiles:
    """The files of a unit; UnreadableError if there is no such unit or it is masked."""
    template = _template(name)
    fragment = next(
        (folder / one for one in (name, template) if one for folder in folders if _exists(folder / one)), None
    )
    if fragment is None:
        raise UnreadableError(
            f"{name}: no such unit in {', '.join(str(folder) for folder in folders if folder.is_dir())}"
        )
    if fragment.resolve() == Path(os.devnull):
        raise UnreadableError(f"{name}: the unit is masked ({fragment} leads to {os.devnull})")
    drop_ins: dict[str, Path] = {}
    # Of drop-ins of one name the most specific folder's counts, and of these the one that is first in weight.
    for folder_name in _drop_in_folders(name, template):
        for folder in folders:
            for path in _listed(folder / folder_name):
                if path.suffix == ".conf":
                    drop_ins.setdefault(path.name, path)
    used = (path for _, path in sorted(drop_ins.items()) if path.resolve() != Path(os.devnull))
    return UnitFiles(name, (fragment, *used))


def drop_ins_beside(path: Path) -> tuple[Path, ...]:
    """The drop-ins in the folder that belongs to a unit file that lies anywhere."""
    return tuple(found for found in _listed(path.with_name(f"{path.name}.d")) if found.suffix == ".conf")


def units_that_mention(text: str, folders: Sequence[Path] = UNIT_FOLDERS) -> Iterator[tuple[Path, str]]:
    """Unit files and drop-ins in whose text or name it occurs, with their texts. What cannot be read is passed over."""
    seen = 0
    for folder in folders:
        for path in _listed(folder):
            inside = _listed(path) if path.suffix == ".d" else (path,)
            for found in inside:
                if found.suffix not in (".service", ".conf"):
                    continue
                seen += 1
                if seen > _MOST_FILES:
                    return
                try:
                    content = read_file(found)
                except UnreadableError:
                    continue
                if text in content or text in found.name:
                    yield found, content


def _exists(path: Path) -> bool:
    try:
        return path.is_symlink() or path.exists()
    except OSError:
        return False


def _listed(folder: Path) -> tuple[Path, ...]:
    try:
        return tuple(sorted(folder.iterdir()))
    except OSError:
        return ()


def _template(name: str) -> str:
    prefix, at, rest = name.partition("@")
    suffix = rest.rpartition(".")[2]
    return f"{prefix}@.{suffix}" if at and not rest.startswith(".") else ""


def _drop_in_folders(name: str, template: str) -> list[str]:
    """The names of drop-in folders, the most specific one first: a-b.service.d, a-.service.d, service.d."""
    stem, _, suffix = name.rpartition(".")
    names = [f"{name}.d"]
    if template:
        names.append(f"{template}.d")
    base = stem.partition("@")[0]
    parts = base.split("-")
    names += [f"{'-'.join(parts[:count])}-.{suffix}.d" for count in range(len(parts) - 1, 0, -1)]
    return [*names, f"{suffix}.d"]
