"""Whether a selection's journal can be read, and if not, why and what to do: libsystemd itself is silent about it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from kvexporter.sources.journal_folders import ROOTS, JournalFile, journal_files, journal_folders, journal_namespaces
from kvexporter.sources.journal_library import JournalUnavailableError, journal_available, open_journal
from kvexporter.sources.journal_selection import JournalSelection

_GIVE_GROUP = (
    "let the exporter's user read the journal: SupplementaryGroups=systemd-journal in its unit, or "
    "`usermod -aG systemd-journal USER` and start it anew"
)


@dataclass(frozen=True, slots=True)
class JournalHealth:
    """What stands in the way of reading; nothing does when `problems` is empty."""

    problems: tuple[str, ...] = ()
    """Each says what is wrong and what to do."""
    notes: tuple[str, ...] = ()
    """What may be normal, but explains an empty journal: no entries yet, journal namespaces."""
    files: int = 0
    """Readable journal files."""
    has_entries: bool | None = None
    """Whether the selection has any entry; None when that could not be looked up."""
    has_own_entries: bool | None = None
    """Whether the unit's own processes wrote any; None when that was not or could not be looked up."""
    detail: str = ""
    """What else is known of a log that can be read."""

    @property
    def ok(self) -> bool:
        return not self.problems


def journal_health(selection: JournalSelection, roots: tuple[str, ...] = ROOTS) -> JournalHealth:
    """Look at the selection's folders, files and entries. A millisecond's work with few files; never raises."""
    reason = journal_available()
    if reason is not None:
        return JournalHealth((reason,))
    if selection.directory is not None and not Path(selection.directory).is_dir():
        return JournalHealth((f"there is no journal folder {selection.directory}",))
    folders = journal_folders(selection, roots)
    if not folders:
        places = " or ".join(roots)
        return JournalHealth(
            (f"there is no journal in {places}: is journald running? In a container, mount them and /etc/machine-id",)
        )
    closed = [folder for folder in folders if not os.access(folder, os.R_OK | os.X_OK)]
    files = journal_files(folders)
    readable = sum(file.readable for file in files)
    used, entries = _look(selection) if readable else (0, None)
    problems, notes = [], []
    hidden = [*closed, *(file.path for file in files if _hides_system(file))]
    if hidden and not entries:
        problems.append(f"no permission to read {hidden[0]}: {_GIVE_GROUP}")
    elif hidden:
        notes.append(f"no permission to read {hidden[0]}: what systemd says about the unit is not seen; {_GIVE_GROUP}")
    elif files and not used:
        problems.append(f"none of the {len(files)} journal files in {folders[-1]} can be used: `journalctl --verify`")
    elif not files:
        notes.append(f"there are no journal files in {' and '.join(folders)} yet")
    if not problems and not entries:
        notes += _why_empty(selection, roots, any_files=bool(files))
    return JournalHealth(tuple(problems), tuple(notes), readable, entries)


def with_own_entries(health: JournalHealth, selection: JournalSelection) -> JournalHealth:
    """Look also whether the unit's own processes wrote any of the entries, and not only systemd about it."""
    return replace(health, has_own_entries=_look(selection.of_its_processes)[1] if health.has_entries else False)


def _hides_system(file: JournalFile) -> bool:
    """An unreadable file that is not just another user's own."""
    return not file.readable and not Path(file.path).name.startswith("user-")


def _look(selection: JournalSelection) -> tuple[int, bool | None]:
    """Bytes of the files that libsystemd could open (damaged ones are not among them), and whether it has an entry."""
    try:
        reader = open_journal(selection)
    except JournalUnavailableError:
        return 0, None
    used, entries = 0, None
    try:
        used = reader.get_usage()
        reader.seek_tail()
        entries = reader._previous()
    except (OSError, ValueError):
        pass
    finally:
        reader.close()
    return used, entries


def _why_empty(selection: JournalSelection, roots: tuple[str, ...], *, any_files: bool) -> list[str]:
    """Why there are no entries; where there are no files at all, that has been said."""
    notes = []
    if any_files:
        text = f"the journal has no entries of {selection}"
        if selection.about is not None:
            text += ": if the unit has run, does it log elsewhere (StandardOutput=, --log-file)?"
        notes.append(text)
    namespaces = journal_namespaces(roots) if selection.namespace is None and selection.directory is None else ()
    if namespaces:
        names = ", ".join(namespaces)
        notes.append(f"journal namespaces exist ({names}): with LogNamespace= in the unit, name it (namespace:)")
    return notes
