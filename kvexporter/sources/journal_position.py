"""Where in a journal reading starts: after a mark, at the unit's current invocation, or at the head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvexporter.sources.journal_library import JournalUnavailableError, LowLevelReader, field, open_journal
from kvexporter.sources.journal_mark import Mark, place
from kvexporter.sources.journal_selection import JournalSelection, MatchGroup, narrowed

StartKind = Literal["position", "gap", "invocation", "head"]

MAX_BACK = 1_000
"""Entries looked at, newest first, for one that tells its invocation."""

SKIPS = (0.0, 0.001, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)
"""Seconds beyond a damaged place at which reading is tried again."""


@dataclass(frozen=True, slots=True)
class JournalStart:
    """Where reading starts."""

    kind: StartKind
    """position: right after the given position; gap: its entry is gone, so at the next one still there, and entries
    between may be lost; invocation: first entry of the unit's current run; head: oldest entry."""
    position_refused: bool = False
    """The given position is none, so reading starts as if none had been given."""


@dataclass(frozen=True, slots=True)
class Landing:
    """Where a reader stands after it was sent behind a mark."""

    kind: Literal["exact", "moved", "gone"]
    """exact: on the mark's entry; moved: on the first entry of the mark's moment, in another file; gone: the mark's
    entry is not there any more."""
    on_unread: bool
    """It stands on an entry that was not looked at yet."""


def seek_after(reader: LowLevelReader, mark: Mark) -> Landing:
    """Position the reader after the mark's entry, wherever a flush of the journal has put it meanwhile.

    ValueError when the mark's text is no cursor.
    """
    last = place(mark.cursor)
    reader.seek_cursor(mark.cursor)
    if not reader._next():
        return Landing("gone", on_unread=False)
    if reader.test_cursor(mark.cursor):
        return Landing("exact", on_unread=False)
    reader.seek_cursor(last.moment)
    if reader._next() and place(reader._get_cursor()).is_copy_of(last):
        return Landing("moved", on_unread=True)
    reader.seek_cursor(mark.cursor)
    return Landing("gone", on_unread=reader._next())


def nothing_lost(selection: JournalSelection, mark: Mark) -> bool:
    """Whether all that came after a mark whose entry is gone is still there.

    It is when the oldest entry of anybody is newer than the mark's, as after a vacuum, but not than the moment up to
    which everything had been read.
    """
    try:
        reader = open_journal(selection, ())
    except JournalUnavailableError:
        return False
    try:
        reader.seek_head()
        return reader._next() and place(mark.cursor).realtime < reader._get_realtime() <= mark.complete
    except (OSError, ValueError):
        return False
    finally:
        reader.close()


def seek_beyond(reader: LowLevelReader, mark: Mark) -> bool:
    """Position the reader on the next entry that can be read after the mark's time; False when there is none yet.

    For the case that what follows the mark is damaged. Tries later and later moments, so more than what is damaged
    may be passed over. OSError when nothing later can be read either.
    """
    stamp = place(mark.cursor).realtime
    failure: OSError | None = None
    for seconds in SKIPS:
        try:
            reader.seek_realtime(stamp + max(1, round(seconds * 1e6)))
            return reader._next()
        except OSError as error:
            failure = error
    raise failure or OSError("nothing to read")


def current_run_start(selection: JournalSelection) -> str | None:
    """Cursor of the first entry of what runs now (or ran last); None when reading should start at the head.

    A run is told by, in this order: the container's id (its lines carry the invocation of Docker's daemon, not of the
    container), systemd's invocation id, and without both the process id within its boot, or the boot alone.
    JournalUnavailableError when the journal cannot be opened.
    """
    if not selection.groups:
        return None  # a whole folder is what was given: all of it counts
    first: tuple[int, str] | None = None
    for fields in _newest_run(selection):
        found = _first_entry(selection, narrowed(selection.groups, *fields))
        if found is not None and (first is None or found[0] < first[0]):
            first = found
    return None if first is None else first[1]


def _first_entry(selection: JournalSelection, groups: tuple[MatchGroup, ...]) -> tuple[int, str] | None:
    """Time and cursor of the oldest entry of the groups."""
    if not groups:
        return None
    reader = open_journal(selection, groups)
    try:
        reader.seek_head()
        return (reader._get_realtime(), reader._get_cursor()) if reader._next() else None
    except OSError:
        return None  # damaged there: the other fields, or else the head, still lead to everything
    finally:
        reader.close()


def _newest_run(selection: JournalSelection) -> tuple[MatchGroup, ...]:
    """What tells the entries of the newest entry's run, as alternatives; none when nothing does."""
    reader = open_journal(selection)
    fallback: tuple[MatchGroup, ...] = ()
    try:
        reader.seek_tail()
        for _ in range(MAX_BACK):
            if not reader._previous():
                break
            invocation = _text(reader, "USER_INVOCATION_ID" if selection.user_unit is not None else "INVOCATION_ID")
            if _own_line(reader, selection):
                for name in ("CONTAINER_ID_FULL", "CONTAINER_ID"):
                    if container := _text(reader, name):
                        return (((name, container),),)
                invocation = _text(reader, "_SYSTEMD_INVOCATION_ID")
                fallback = fallback or _process_of(reader)
            if invocation:
                # systemd's messages name the invocation they are about in another field than the unit's own lines.
                names = ("_SYSTEMD_INVOCATION_ID", "INVOCATION_ID", "USER_INVOCATION_ID")
                return tuple(((name, invocation),) for name in names)
    except OSError:
        pass
    finally:
        reader.close()
    return fallback


def _process_of(reader: LowLevelReader) -> tuple[MatchGroup, ...]:
    """The current entry's process in its boot, as far as it tells them."""
    group = tuple((name, value) for name in ("_PID", "_BOOT_ID") if (value := _text(reader, name)))
    return (group,) if group else ()


def _own_line(reader: LowLevelReader, selection: JournalSelection) -> bool:
    """Whether the unit itself wrote it: journald's and systemd-coredump's messages carry their own invocations."""
    if selection.about is None:
        return True
    name = "_SYSTEMD_UNIT" if selection.unit is not None else "_SYSTEMD_USER_UNIT"
    return field(reader, name) == selection.about.encode()


def _text(reader: LowLevelReader, name: str) -> str | None:
    value = field(reader, name)
    return None if value is None else value.decode("ascii", "replace")
