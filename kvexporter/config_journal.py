"""The sections `journal`, of the whole configuration and of a server: where the journal is, and which entries count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from kvexporter.config_kinds import DIRECTORY, MATCHES, NAMESPACE
from kvexporter.config_reading import Key, ListOf, Place, Section


@dataclass(frozen=True, slots=True)
class JournalDefaults:
    """Where the journal is, for all servers that do not say it themselves."""

    directory: Annotated[
        Path | None,
        Key(DIRECTORY, "Folder with journal files to read instead of this host's journal.", "the host's journal"),
    ] = None
    namespace: Annotated[
        str | None, Key(NAMESPACE, "Journal namespace of the units (`LogNamespace=`).", "the default namespace")
    ] = None


def _check_journal_defaults(place: Place, journal: JournalDefaults) -> JournalDefaults:
    if journal.directory is not None and journal.namespace is not None:
        raise place.refuse("expected directory or namespace, found both: a folder has no namespaces")
    return journal


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """Which journal entries are one server's."""

    matches: Annotated[
        tuple[dict[str, str], ...],
        Key(
            ListOf(MATCHES, limit=20, at_least=1),
            "Journal fields of the server's entries, for servers that are no unit of their own, such as containers. "
            "All fields of a group must match; any group may.",
            "the unit's entries; without a unit, all entries of `directory`",
        ),
    ] = ()
    directory: Annotated[
        Path | None,
        Key(DIRECTORY, "Folder with journal files to read instead of this host's journal.", "`journal.directory`"),
    ] = None
    namespace: Annotated[
        str | None, Key(NAMESPACE, "Journal namespace of the unit (`LogNamespace=`).", "`journal.namespace`")
    ] = None


def _check_journal(place: Place, journal: JournalConfig) -> JournalConfig:
    if journal.directory is not None and journal.namespace is not None:
        raise place.refuse("expected directory or namespace, found both: a folder has no namespaces")
    if not journal.matches and journal.directory is None and journal.namespace is None:
        raise place.refuse("expected matches, directory or namespace, found none of them")
    return journal


JOURNAL_DEFAULTS = Section(JournalDefaults, _check_journal_defaults)
JOURNAL = Section(JournalConfig, _check_journal)
