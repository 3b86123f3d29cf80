"""The way into libsystemd: systemd-python's low-level reader, which may be missing.

The low-level `_Reader` is used because it is seven times faster than `journal.Reader`, and gives bytes for every field.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol, cast

from kvexporter.sources.journal_selection import JournalSelection, MatchGroup, add_groups

LOCAL_ONLY = 1  # SD_JOURNAL_LOCAL_ONLY


class JournalUnavailableError(Exception):
    """The journal cannot be opened; the text says why and what to do."""


class LowLevelReader(Protocol):
    """What is used of `systemd._reader._Reader`. One thread at a time may use it (systemd-python issue 143)."""

    def _next(self) -> bool: ...
    def _previous(self) -> bool: ...
    def _get(self, field: str, /) -> bytes: ...
    def _get_realtime(self) -> int: ...
    def _get_cursor(self) -> str: ...
    def add_match(self, match: str, /) -> None: ...
    def add_disjunction(self) -> None: ...
    def seek_head(self) -> None: ...
    def seek_tail(self) -> None: ...
    def seek_cursor(self, cursor: str, /) -> None: ...
    def seek_realtime(self, microseconds: int, /) -> None: ...
    def test_cursor(self, cursor: str, /) -> bool: ...
    def query_unique(self, field: str, /) -> set[bytes]: ...
    def get_usage(self) -> int: ...
    def fileno(self) -> int: ...
    def reliable_fd(self) -> bool: ...
    def process(self) -> int: ...
    def close(self) -> None: ...


def journal_available() -> str | None:
    """Why no journal can be read at all on this host, with what to do; None when it can."""
    try:
        _reader_type()
    except JournalUnavailableError as error:
        return str(error)
    return None


def open_journal(selection: JournalSelection, groups: tuple[MatchGroup, ...] | None = None) -> LowLevelReader:
    """A reader of the selection's entries (of `groups` in its journal, if given), watching its files, with no position.

    JournalUnavailableError when it cannot be opened. Without permission it opens and stays empty: see journal_health.
    """
    reader_type = _reader_type()
    try:
        if selection.directory is not None:
            reader = cast("LowLevelReader", reader_type(0, selection.directory))
        elif selection.namespace is not None:
            reader = cast("LowLevelReader", reader_type(LOCAL_ONLY, namespace=selection.namespace))
        else:
            reader = cast("LowLevelReader", reader_type(LOCAL_ONLY))
    except FileNotFoundError as error:
        raise JournalUnavailableError(f"there is no journal folder {selection.directory}") from error
    except (OSError, ValueError, TypeError) as error:
        raise JournalUnavailableError(f"the journal of {selection} cannot be opened: {error}") from error
    try:
        # At once: files that are deleted before the descriptor exists would stay open for ever (systemd issue 14695).
        reader.fileno()
        add_groups(reader, selection.groups if groups is None else groups)
    except (OSError, ValueError) as error:
        reader.close()
        raise JournalUnavailableError(f"the journal of {selection} cannot be followed: {error}") from error
    return reader


def field(reader: LowLevelReader, name: str) -> bytes | None:
    """A field of the current entry, None where it has none or its data is damaged."""
    try:
        return reader._get(name)
    except (KeyError, OSError, ValueError):
        return None


def _reader_type() -> Any:
    try:
        return importlib.import_module("systemd._reader")._Reader
    except ImportError as error:
        if "libsystemd" in str(error):
            text = f"libsystemd is missing ({error}): install it (Debian: apt install libsystemd0)"
        else:
            text = (
                "systemd-python is missing: install kvexporter[journal] (Debian: apt install libsystemd-dev pkg-config "
                "gcc python3-dev first), or the package python3-systemd"
            )
        raise JournalUnavailableError(text) from error
