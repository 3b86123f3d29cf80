"""Where the host's journal files are: the folders, and what is in them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from kvexporter.sources.journal_selection import JournalSelection

ROOTS = ("/run/log/journal", "/var/log/journal")
_MACHINE = re.compile(r"[0-9a-f]{32}")
_MACHINE_OR_NAMESPACE = re.compile(r"[0-9a-f]{32}(?:\.(?P<namespace>.+))?")


@dataclass(frozen=True, slots=True)
class JournalFile:
    """One journal file as its folder lists it."""

    path: str
    inode: int
    readable: bool


def journal_folders(selection: JournalSelection, roots: tuple[str, ...] = ROOTS) -> tuple[str, ...]:
    """The folders that libsystemd looks into for the selection and that exist, sorted."""
    if selection.directory is not None:
        return _with_machines(selection.directory, namespace=None)
    return tuple(folder for root in roots for folder in _with_machines(root, selection.namespace))


def journal_namespaces(roots: tuple[str, ...] = ROOTS) -> tuple[str, ...]:
    """Names of the journal namespaces that have files on this host, sorted."""
    names = (_MACHINE_OR_NAMESPACE.fullmatch(name) for root in roots for name in _subfolders(root))
    return tuple(sorted({match["namespace"] for match in names if match and match["namespace"]}))


def journal_files(folders: tuple[str, ...]) -> tuple[JournalFile, ...]:
    """The journal files in the folders, sorted; what cannot be listed is left out."""
    files = []
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                files += [
                    JournalFile(entry.path, entry.inode(), os.access(entry.path, os.R_OK))
                    for entry in entries
                    if entry.name.endswith((".journal", ".journal~"))
                ]
        except OSError:
            continue
    return tuple(sorted(files, key=lambda file: file.path))


def listing(selection: JournalSelection, roots: tuple[str, ...] = ROOTS) -> tuple[tuple[str, int], ...]:
    """Folders and files with their inodes: differs after a rotation, a vacuum, or when a folder was made anew."""
    folders = journal_folders(selection, roots)
    found = []
    for folder in folders:
        try:
            found.append((folder, Path(folder).stat().st_ino))
        except OSError:
            continue
    return (*found, *((file.path, file.inode) for file in journal_files(folders)))


def in_both_places(files: tuple[tuple[str, int], ...]) -> tuple[bool, bool]:
    """Whether a `listing` has journal files in /run, and whether it has some in /var."""
    names = [path for path, _ in files if path.endswith((".journal", ".journal~"))]
    volatile, persistent = ROOTS
    return any(name.startswith(volatile + "/") for name in names), any(
        name.startswith(persistent + "/") for name in names
    )


def _with_machines(root: str, namespace: str | None) -> tuple[str, ...]:
    """The folder itself and its machines' folders (of the namespace): one level, as libsystemd descends."""
    below = []
    for name in sorted(_subfolders(root)):
        if namespace is None:
            wanted = _MACHINE.fullmatch(name) is not None
        else:
            match = _MACHINE_OR_NAMESPACE.fullmatch(name)
            wanted = match is not None and match["namespace"] == namespace
        if wanted:
            below.append(str(Path(root) / name))
    return (root, *below) if Path(root).is_dir() else ()


def _subfolders(root: str) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return []
